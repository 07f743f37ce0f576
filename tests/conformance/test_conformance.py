"""Every case gives what NumPy expects on the emulator: plain and instrumented, whatever the order of the threads."""

import functools

import pytest

from tests.conformance.cases import ALONE, CASES
from tests.conformance.devices import Outcome, run_emulated
from tests.conformance.table import Case, errors

ORDERS = (0, 1, 7)


@functools.cache
def outcome(is_checked: bool, order_seed: int) -> Outcome:
    return run_emulated(order_seed=order_seed, observe=is_checked)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("order_seed", ORDERS)
@pytest.mark.parametrize("is_checked", [False, True], ids=["plain", "checked"])
def test_case(is_checked: bool, order_seed: int, case: Case) -> None:
    found = outcome(is_checked, order_seed)
    assert case.name in found.results, found.failure
    assert errors(case.launch(), found.results[case.name]) <= case.ulps


@pytest.mark.parametrize("order_seed", ORDERS)
def test_no_reports(order_seed: int) -> None:
    assert outcome(True, order_seed).observed["reports"] == []


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.name)
def test_what_a_kernel_says(case: Case) -> None:
    found = run_emulated([case.name])
    assert case.says in found.printed + found.failure
