"""Properties report the smallest failing example, quickly and the same each time."""

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st

from grader.checking import properties
from grader.checking.api import Failure, property_check


def failure_of(check: Callable[..., None]) -> Failure:
    with pytest.raises(Failure) as caught:
        check(rng=np.random.default_rng(1))
    return caught.value


def test_a_failing_example_is_shrunk() -> None:
    calls = []

    @property_check(a=st.integers(0, 1000), b=st.integers(0, 1000))
    def check(a: int, b: int) -> None:
        calls.append((a, b))
        if a >= 17:
            raise Failure("INCORRECT_SHAPE", f"{a}")

    failure = failure_of(check)
    assert (failure.message, failure.evidence["drawn"]) == ("17", "a=17, b=0")
    assert len(calls) == len(set(calls)), "an example was called for twice"
    again = len(calls)
    failure_of(check)
    assert calls[:again] == calls[again:]


def test_the_generator_depends_on_the_example_alone() -> None:
    seen: dict[int, float] = {}

    @property_check(n=st.integers(0, 3), examples=30)
    def check(rng: np.random.Generator, n: int) -> None:
        assert seen.setdefault(n, rng.random()) == seen[n]

    check(rng=np.random.default_rng(1))
    check(rng=np.random.default_rng(1))
    assert len(set(seen.values())) == len(seen) > 1


def test_another_verdict_is_another_fault() -> None:
    @property_check(n=st.integers(0, 1000), examples=100)
    def check(n: int) -> None:
        if n:
            raise Failure("INCORRECT_SHAPE" if n > 300 else "CRASHED", f"{n}")

    failure = failure_of(check)
    assert (failure.verdict, int(failure.message) > 300) in (("INCORRECT_SHAPE", True), ("CRASHED", False))


def test_shrinking_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "SHRINK_SECONDS", 0.3)

    calls = 0

    @property_check(values=st.lists(st.integers(0, 2**40), min_size=20), examples=20)
    def check(values: list[int]) -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.02)
        raise Failure("INCORRECT_SHAPE", "wrong")

    assert failure_of(check).message == "wrong"
    assert calls <= 17  # the first, and as many as go into 0.3 s


def test_a_timeout_is_never_shrunk() -> None:
    calls = []

    @property_check(n=st.integers(0, 1000))
    def check(n: int) -> None:
        calls.append(n)
        if n > 5:
            raise Failure("TIMEOUT", f"{n}")

    assert failure_of(check).message == str(calls[-1])
    assert all(n <= 5 for n in calls[:-1])


def test_answers_that_change_are_called_a_race() -> None:
    seen: set[int] = set()

    @property_check(n=st.integers(0, 1000))
    def check(n: int) -> None:
        if n not in seen:
            seen.add(n)
            raise Failure("INCORRECT_VALUE", "1 of 3 values is wrong.")

    failure = failure_of(check)
    assert failure.verdict == "INCORRECT_VALUE"
    assert failure.message.startswith("The result differs between runs.")
    assert "look for a race" in failure.evidence["hint"]


def test_faults_of_the_grader_are_no_failures() -> None:
    @property_check(n=st.integers(0, 3))
    def check(n: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        check(rng=np.random.default_rng(1))
