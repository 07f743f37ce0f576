"""All cases of the conformance suite."""

from tests.conformance import language, memory, threads, warps

CASES = [case for module in (language, memory, threads, warps) for case in module.table.cases]
