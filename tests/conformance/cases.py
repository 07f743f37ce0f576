"""All cases of the conformance suite."""

from tests.conformance.kernels import (
    atomics,
    attention,
    gemms,
    groups,
    language,
    lists,
    memory,
    rows,
    threads,
    warps,
    whole,
)

_MODULES = (atomics, attention, gemms, groups, language, lists, memory, rows, threads, warps, whole)
_ALL = [case for module in _MODULES for case in module.table.cases]
CASES = [case for case in _ALL if not case.says]
ALONE = [case for case in _ALL if case.says]
"""Each needs a process of its own."""
