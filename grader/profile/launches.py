"""Runs checks for the sake of their launches: each launch of a kernel with instrumented kernels, profiled."""

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grader.checking.draws import bf16, floats
from grader.checking.functions import generator, is_check
from grader.failure import Failure
from grader.manifest import Check
from grader.observe.counters import Counters, Profile
from grader.worker.arguments import Out
from grader.worker.client import Worker
from grader.worker.connection import Deadlines

PATIENCE = 3.0
"""Deadlines are this much longer, since instrumented kernels are slower."""

FIRST_SECONDS = 15.0
"""For the launches of a kernel until one has come to its end: more takes only one that never does."""

WIDE = (16, 2048)
"""Rows of several elements a thread, in which it shows what a step of the loop along them reads. Checks that count
work launch narrower ones."""

NOTHING = Counters(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Of a launch whose outputs are empty: it is not made."""

Function = Callable[..., None]


@dataclass(frozen=True)
class Launched:
    """The launch of one kernel that moved the most, and the text of its call."""

    profile: Profile
    case: str


class ProfilingWorker(Worker):
    """On the emulator; `launched` keeps what each kernel's largest launch did."""

    def __init__(self, engine: Path, deadlines: Deadlines) -> None:
        super().__init__(engine, deadlines, emulated=True)
        self.launched: dict[str, Launched] = {}
        self._endless: dict[str, str] = {}  # what was said of these kernels

    def launch(self, op: str, *arguments: Any) -> Any:
        """As Worker.launch, profiled and not checked."""
        return self._profiled(op, arguments)[0]

    def count(self, op: str, *arguments: Any) -> tuple[Any, Counters]:
        """As Worker.count, but without sites."""
        return self._profiled(op, arguments)

    def launch_wide(self, op: str) -> None:
        """Launch a kernel that goes along rows on WIDE ones, if it came to its end on others."""
        rng = np.random.default_rng(0)
        arguments: dict[str, tuple[Any, ...]] = {
            "rmsnorm_tree": (Out(WIDE), bf16(rng, *WIDE), bf16(rng, WIDE[1]), 1e-5),
            "rmsnorm": (Out(WIDE), bf16(rng, *WIDE), bf16(rng, WIDE[1]), 1e-5),
            "softmax": (Out(WIDE, np.float32), floats(rng, *WIDE)),
            "argmax": (Out(WIDE[0], np.int32), floats(rng, *WIDE)),
        }
        if op in arguments and op in self.launched:
            with contextlib.suppress(Failure):
                self._profiled(op, arguments[op])

    def _profiled(self, op: str, arguments: tuple[Any, ...]) -> tuple[Any, Counters]:
        """What a launch returns, and what it did; a kernel that once did not come to its end is not launched again."""
        if op in self._endless:
            raise Failure("TIMEOUT", self._endless[op], {"case": op})
        allowed = self._deadlines.call_seconds
        if op not in self.launched:
            self._deadlines.call_seconds = min(allowed, FIRST_SECONDS)
        try:
            with self._kernels.observing(counted=True, profiled=True) as seen:
                outputs = self._interruptible(op, arguments)
        except Failure as failure:
            if failure.verdict == "TIMEOUT":
                self._endless[op] = failure.message
            raise
        finally:
            self._deadlines.call_seconds = allowed
        for name, profile in seen.profiles.items():
            known = self.launched.get(name)
            if not profile.sites:  # it is not written yet
                continue
            if known is None or _cost(profile) > _cost(known.profile):
                self.launched[name] = Launched(profile, self.last_call)
        return outputs, seen.kernels[-1].counters if seen.kernels else NOTHING

    def _interruptible(self, op: str, arguments: tuple[Any, ...]) -> Any:
        """What a launch returns; Ctrl-C ends the device at once, which would not answer before its kernel ends."""
        try:
            return self._launch(op, arguments)[0]
        except KeyboardInterrupt:
            self.end()
            raise


def _cost(profile: Profile) -> int:
    return sum(site.cost for site in profile.sites)


class Rehearsal:
    """Runs the checks of a stage on one worker; `failures` says how those ended that did not pass.

    `tell` gets the id of each check before it runs.
    """

    def __init__(self, worker: ProfilingWorker, deadlines: Deadlines, stage: str, tell: Callable[[str], None]) -> None:
        self.failures: dict[str, Failure] = {}
        self._worker = worker
        self._deadlines = deadlines
        self._functions = check_functions(stage)
        self._tell = tell

    def counts_work(self, check: Check) -> bool:
        """Whether a check looks at what the emulator counts."""
        return "emulator" in inspect.signature(self._functions[check.id]).parameters

    def run(self, checks: Iterable[Check]) -> None:
        """Run the checks one after the other; those that want more than kernels to launch are left out."""
        for check in checks:
            fixtures = self._fixtures(check)
            wanted = inspect.signature(self._functions[check.id]).parameters
            if not wanted.keys() <= fixtures.keys():
                continue
            self._tell(check.id)
            self._deadlines.start(PATIENCE * check.deadline)
            try:
                self._functions[check.id](**{name: fixtures[name] for name in wanted})
            except Failure as failure:
                self.failures[check.id] = failure
            self._worker.release()

    def _fixtures(self, check: Check) -> Mapping[str, Any]:
        return {
            "worker": self._worker,
            "emulator": self._worker,
            "rng": generator(check.id, seed=0),
            "expect_band": lambda *_: None,
        }


def check_functions(stage: str) -> dict[str, Function]:
    """The functions of a stage's checks by the ids of these."""
    values = vars(importlib.import_module(f"grader.checks.{stage}")).values()
    return {value.check_id: value for value in values if is_check(value)}
