"""Runs a check on drawn examples (Hypothesis) and reports the smallest that fails."""

import hashlib
import inspect
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture import providers
from hypothesis.strategies import SearchStrategy

from grader.failure import Failure
from grader.worker.client import Worker

SHRINK_SECONDS = 3.0
"""How long after the first failure smaller ones are looked for."""

# Hypothesis mixes constants from the source of all loaded modules into what it draws. A check must draw the same alone
# and in a whole run, so only its own list of special values stays.
assert callable(providers._get_local_constants)
providers._get_local_constants = lambda: providers._local_constants

RACE_HINT = "The same inputs gave another answer the second time: look for a race."


def property_check(*, examples: int = 30, **strategies: SearchStrategy[Any]) -> Callable[..., Callable[..., None]]:
    """Make a check run on `examples` drawn examples; the strategies' names are parameters of the check function.

    Its parameter `rng` is seeded anew for each example, by the run's seed, the check and the drawn values alone.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(function).parameters
        wanted = [parameters[name] for name in parameters if name not in strategies]
        takes_rng = "rng" in parameters

        @wraps(function)
        def run(rng: np.random.Generator, **fixtures: Any) -> None:
            def call(drawn: Mapping[str, Any]) -> None:
                generator = {"rng": _example_rng(base, drawn)} if takes_rng else {}
                try:
                    function(**fixtures, **generator, **drawn)
                except Failure as failure:
                    for worker in workers:
                        failure.evidence["case"] = worker.last_call
                    raise

            workers = [fixture for fixture in fixtures.values() if isinstance(fixture, Worker)]

            base = int(rng.integers(2**63))
            _Search(call, base).run(strategies, examples)

        if not takes_rng:
            wanted.append(inspect.Parameter("rng", inspect.Parameter.POSITIONAL_OR_KEYWORD))
        run.__signature__ = inspect.Signature(wanted)  # type: ignore[attr-defined]
        return run

    return decorate


class _FoundError(Exception):
    """A failing example, seen by Hypothesis as one and the same error, whatever the failure was."""


class _Search:
    """One search for a failing example. Failures are remembered, so that none is called for twice."""

    def __init__(self, call: Callable[[Mapping[str, Any]], None], base: int) -> None:
        self.call = call
        self.base = base
        self.failures: dict[str, tuple[Mapping[str, Any], Failure]] = {}
        self.deadline = float("inf")
        self.smallest = ""

    def run(self, strategies: Mapping[str, SearchStrategy[Any]], examples: int) -> None:
        try:
            self._hypothesis(strategies, examples)
        except _FoundError:
            raise self._smallest_failure() from None
        except Flaky:
            raise Failure("INCORRECT_VALUE", RACE_HINT) from None

    def _hypothesis(self, strategies: Mapping[str, SearchStrategy[Any]], examples: int) -> None:
        @seed(self.base)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            print_blob=False,
            phases=(Phase.generate, Phase.shrink),
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )
        @given(**strategies)
        def example(**drawn: Any) -> None:
            if self._fails(drawn):
                raise _FoundError

        example()

    def _fails(self, drawn: Mapping[str, Any]) -> bool:
        """Whether this example fails as the first failing one did; called only in time and only once."""
        key = _text(drawn)
        if key in self.failures:
            self.smallest = key
            return True
        if time.monotonic() > self.deadline:
            return False
        try:
            self.call(drawn)
        except Failure as failure:
            return self._remember(key, drawn, failure)
        return False

    def _remember(self, key: str, drawn: Mapping[str, Any], failure: Failure) -> bool:
        if not self.failures:
            self.deadline = time.monotonic() + SHRINK_SECONDS
        elif failure.verdict != next(iter(self.failures.values()))[1].verdict:
            return False  # another fault than the one that is being shrunk
        if failure.verdict == "TIMEOUT":
            self.deadline = 0.0
        self.failures[key] = drawn, failure
        self.smallest = key
        return True

    def _smallest_failure(self) -> Failure:
        """The failure of the last example that Hypothesis replayed: the smallest it found."""
        drawn, failure = self.failures[self.smallest]
        failure.evidence.setdefault("drawn", self.smallest)
        if failure.verdict in ("INCORRECT_VALUE", "NOT_FINITE") and self._passes_now(drawn):
            failure.evidence["hint"] = RACE_HINT
            return Failure("INCORRECT_VALUE", f"The result differs between runs. {failure.message}", failure.evidence)
        return failure

    def _passes_now(self, drawn: Mapping[str, Any]) -> bool:
        try:
            self.call(drawn)
        except Failure:
            return False
        return True


def _example_rng(base: int, drawn: Mapping[str, Any]) -> np.random.Generator:
    digest = hashlib.sha256(f"{base} {_text(drawn)}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def _text(drawn: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={drawn[name]!r}" for name in sorted(drawn))
