"""All cases of the conformance suite."""

from tests.conformance import language, threads, warps

CASES = [case for module in (language, threads, warps) for case in module.table.cases]
