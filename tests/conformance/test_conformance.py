"""Every case gives what NumPy expects on the emulator: plain and instrumented, whatever the order of the threads."""

import functools

import pytest

from tests.conformance.cases import CASES
from tests.conformance.devices import Outcome, run_emulated
from tests.conformance.table import Case, errors

MODES: dict[str, dict[str, bool]] = {"plain": {}, "checked": {"counted": True, "checked": True}}
ORDERS = (0, 1, 7)


@functools.cache
def outcome(mode: str, order_seed: int) -> Outcome:
    return run_emulated(order_seed=order_seed, **MODES[mode])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("order_seed", ORDERS)
@pytest.mark.parametrize("mode", MODES)
def test_case(mode: str, order_seed: int, case: Case) -> None:
    found = outcome(mode, order_seed)
    assert not found.failure, found.failure
    assert errors(case.launch(), found.results[case.name]) <= case.ulps


@pytest.mark.parametrize("order_seed", ORDERS)
@pytest.mark.parametrize("mode", MODES)
def test_no_reports(mode: str, order_seed: int) -> None:
    assert outcome(mode, order_seed).observed.get("reports", []) == []
