"""All cases of the conformance suite."""

from tests.conformance import atomics, groups, language, memory, threads, warps

CASES = [case for module in (atomics, groups, language, memory, threads, warps) for case in module.table.cases]
