"""One process of a submission that is started when it is needed and replaced when it fails.

Whatever goes wrong in an exchange becomes a Failure. A process that died, hung or answered nonsense, or whose device
failed, is ended; the next exchange starts another, so that it costs one check.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from given.contracts import CONTRACTS

from grader.emulator.compiler.headers import GIVEN, GIVEN_NAME
from grader.failure import Failure
from grader.ipc.framing import ProtocolError
from grader.judge.loops import endless
from grader.observe.device_activity import DeviceActivity
from grader.observe.findings import failure_of
from grader.worker.arguments import CallPayload
from grader.worker.child import Child
from grader.worker.student_errors import source_lines, student_error, tidy

START_SECONDS = 90.0
LATE_SECONDS = 3.0
"""For a launch on the emulator of a kernel that was not in time before: it is compiled, and most likely endless."""

SLOW_BUILD = "look for a large loop under #pragma unroll, a large constexpr computation, or templates in templates"
LOOK_FOR_LOOP = "look for a loop that does not end (its step, its bound, the type of its counter)"


class WorkerFault(Exception):
    """A worker cannot be started: a fault of the grader or of the machine, not of the submission."""


@dataclass
class Deadlines:
    """The deadlines of the running check: for the whole of it, and for each call a third of that. In seconds.

    A kernel that was not in time once has less of it from then on. `last_call` is the text of the check's last call,
    for evidence.
    """

    call_seconds: float = 60.0
    deadline: float = float("inf")
    last_call: str = ""
    late: set[str] = field(default_factory=set)
    """The kernels that did not return in time."""

    def start(self, check_seconds: float) -> None:
        """A check begins."""
        self.last_call = ""
        self.call_seconds = check_seconds / 3
        self.deadline = time.monotonic() + check_seconds

    def call_deadline(self) -> float:
        return min(self.deadline, time.monotonic() + self._seconds())

    def timeout(self, *, emulated: bool, launched: bool, compiling: bool = False) -> Failure:
        """The failure of the last call, of a kernel if `launched`, which had no end in time."""
        name, seconds = self._name(), self._seconds()
        if compiling:
            return Failure(
                "TIMEOUT", f"The kernel of {name} was still being compiled after {seconds:.2g} s: {SLOW_BUILD}."
            )
        if time.monotonic() >= self.deadline:
            return Failure("TIMEOUT", f"The check took too long; it was ended during {name}.")
        if emulated and launched:
            self.late.add(name)
        barrier = "" if emulated else ", or a barrier that some threads never reach"
        return Failure("TIMEOUT", f"{name} did not return within {seconds:.2g} s: {LOOK_FOR_LOOP}{barrier}.")

    def _name(self) -> str:
        return self.last_call.partition("(")[0]

    def _seconds(self) -> float:
        """For the last call."""
        return min(self.call_seconds, LATE_SECONDS) if self._name() in self.late else self.call_seconds


class Connection:
    """Exchanges with a worker and its device; `generation` counts those that ended."""

    def __init__(self, engine: Path, deadlines: Deadlines, *, emulated: bool, empty: bool) -> None:
        self.generation = 0
        self._engine = engine
        self._deadlines = deadlines
        self._emulated = emulated
        self._empty = empty
        self._memory_limit: int | None = None
        self._checked = False
        self._child: Child | None = None

    def exchange(
        self, header: dict[str, Any], request: CallPayload, limit: int = 0
    ) -> tuple[dict[str, Any], memoryview]:
        """The answer to a request: its header, and its arrays followed by at most `limit` bytes. Raises Failure."""
        child = self._started()
        try:
            deadline = self._deadlines.call_deadline()
            answer, payload = child.exchange(header, request.payload, request.size + limit, deadline)
        except TimeoutError:
            raise self._ended(self._late(header, compiling=child.is_compiling())) from None
        except ProtocolError as error:
            raise self.malformed(str(error)) from None
        except (EOFError, OSError):
            raise self._ended(child.death()) from None
        if "error" in answer:
            raise self._raised(answer["error"])
        if answer.get("ok") is not True or len(payload) < request.size:
            raise self.malformed("an answer without its arrays")
        return answer, payload

    def _late(self, header: dict[str, Any], *, compiling: bool) -> Failure:
        """The failure of a call that had no end in time, with the loops of its kernel."""
        launched = header["verb"] == "launch"
        failure = self._deadlines.timeout(emulated=self._emulated, launched=launched, compiling=compiling)
        if launched and not compiling:
            with contextlib.suppress(OSError):
                file = self._engine / "kernels" / CONTRACTS[header["op"]].file
                failure.evidence.update(endless(file.read_text("utf-8", "replace")))
        return failure

    def malformed(self, what: str) -> Failure:
        """Failure for a malformed reply; kills the worker."""
        return self._ended(Failure("RUNTIME_ERROR", f"The process that runs the code sent no valid answer but {what}."))

    @contextlib.contextmanager
    def observing(
        self,
        *,
        counted: bool = False,
        checked: bool = False,
        profiled: bool = False,
        order: int = 0,
        change: tuple[int, float] | None = None,
    ) -> Iterator[DeviceActivity]:
        """What the emulated device does meanwhile, with `counted` in detail; on a GPU only the seconds.

        With `checked`, a kernel that does what it must not is a Failure; with `counted` and `profiled` the instructions
        of kernels are told of too. `order` is the seed of the threads' order. `change` is of Worker.changing.
        """
        child = self._started()
        if child.device is None and (counted or checked or change):
            raise TypeError("kernels are counted and checked on the emulator only: use the fixture `emulator`")
        self._observe(child, order, counted=counted, checked=checked, profiled=profiled, change=change)
        seen = DeviceActivity()
        try:
            begin = time.monotonic()
            yield seen
            seen.seconds = time.monotonic() - begin
            if self._child is not child:
                raise Failure("CRASHED", "What the process did is not known: it ended.")
            if child.device is not None:
                with self._controlling():
                    seen.complete(child.device.control.observed())
        except Failure as failure:
            found = self._found()  # what a kernel did says more than what came of it
            self._stop_observing(child, bool(counted or checked or change))
            raise found or failure from None
        self._stop_observing(
            child, bool(counted or checked or change)
        )  # not after Ctrl-C: the device may be busy for ever

    def _stop_observing(self, child: Child, was_changed: bool) -> None:
        if was_changed and self._child is child:
            self._observe(child)

    def _observe(self, child: Child, order: int = 0, **modes: Any) -> None:
        """Let the device begin anew to count; the time for building instrumented kernels is not the check's."""
        self._checked = modes.get("checked", False)
        if child.device is not None:
            begin = time.monotonic()
            with self._controlling():
                child.device.control.set_mode(order_seed=order)
                child.device.control.observe(**modes)
            self._deadlines.deadline += time.monotonic() - begin

    def limit_memory(self, limit: int | None) -> None:
        """Let no more than `limit` bytes of the emulated device's memory be in use, in its successors too."""
        if not self._emulated:
            raise TypeError("memory is limited on the emulator only: use the fixture `emulator`")
        self._memory_limit = limit
        if self._child is not None and self._child.device is not None:
            with self._controlling():
                self._child.device.control.limit_memory(limit)

    def first_written(self, pointer: int, size: int, skipped: list[tuple[int, int]]) -> int | None:
        """As Control.first_written; raises Failure."""
        device = self._started().device
        if device is None:
            raise TypeError("Sparse arrays are for the emulator only: use the fixture `emulator`")
        with self._controlling():
            return device.control.first_written(pointer, size, skipped)

    @contextlib.contextmanager
    def _controlling(self) -> Iterator[None]:
        """Turns the device's end into a Failure."""
        try:
            yield
        except OSError:
            raise self._ended(Failure("CRASHED", "A kernel ended the emulated GPU.")) from None

    def memory(self) -> int:
        """Bytes of memory that the process holds, without those of mapped files."""
        return self._started().memory()

    def printed(self) -> str:
        """What the code printed since the last `release`, its first and last lines."""
        return tidy(self._child.printed(), self._scrub()).strip() if self._child else ""

    def release(self) -> None:
        """Let the process forget the objects and arrays of the check that ended."""
        if self._memory_limit is not None:
            with contextlib.suppress(Failure):
                self.limit_memory(None)
        if self._child is not None:
            self._child.forget_printed()
            with contextlib.suppress(Failure):
                self.exchange({"verb": "release"}, CallPayload((), (), device=False))

    def end(self) -> None:
        """End the processes, if there are any."""
        if self._child is not None:
            self.generation += 1
            child, self._child = self._child, None
            child.end()

    def _started(self) -> Child:
        if self._child is None:
            begin = time.monotonic()
            try:
                self._child = Child(emulated=self._emulated)
                hello = {"verb": "hello", "engine": str(self._engine)}
                answer, _ = self._child.exchange(hello, b"", 0, begin + START_SECONDS)
                if self._child.device is not None:
                    self._child.device.control.set_mode(empty=self._empty)
                    self._child.device.control.limit_memory(self._memory_limit)
            except (OSError, EOFError, ProtocolError) as error:
                raise self._cannot_start(f"{type(error).__name__}: {error}") from error
            if answer.get("ok") is not True:
                raise self._cannot_start(str(answer.get("error")))
            self._deadlines.deadline += time.monotonic() - begin
        return self._child

    def _cannot_start(self, reason: str) -> WorkerFault:
        details = f"{self.printed()}\n{reason}".strip()
        self.end()
        found = re.search(r"^[\w.]*Error: .*", details, re.MULTILINE)
        short = found[0] if found else reason.partition("\n")[0]
        return WorkerFault(f"{details}\nThe process that runs submissions cannot be started: {short.strip()}")

    def _raised(self, report: Any) -> Failure:
        """The failure for an exception in the worker, which is ended where its device may be in no good state."""
        try:
            failure: Failure = student_error(report, self._scrub())
        except ValueError:
            return self.malformed("an error report of another form")
        if failure.verdict == "COMPILE_ERROR" and (lines := source_lines(self._engine, failure.message)):
            failure.evidence["source"] = lines
        failure = self._found() or failure
        return self._ended(failure) if report.get("device") is not False else self._told(failure)

    def _found(self) -> Failure | None:
        """The failure for what checked kernels did, before the device that knows it is ended."""
        if not self._checked or self._child is None or self._child.device is None:
            return None
        with contextlib.suppress(OSError):
            return failure_of(self._child.device.control.observed()["reports"])
        return None

    def _ended(self, failure: Failure) -> Failure:
        """The failure, completed by what the processes leave behind; ends them."""
        if self._child is not None:
            device = self._child.device
            crash = device.control.crash_report() if device is not None else None
            if crash:
                verdict = "OUT_OF_BOUNDS" if "address" in crash else "CRASHED"
                failure = Failure(verdict, f"The kernel crashed: {tidy(crash, self._scrub())}", failure.evidence)
            failure = self._told(failure)
            self.end()
        return failure

    def _told(self, failure: Failure) -> Failure:
        """The failure with what the code printed, where nothing better is known."""
        if "log" not in failure.evidence and (printed := self.printed()):
            failure.evidence["log"] = printed
        return failure

    def _scrub(self) -> dict[str, str]:
        home = self._child.home if self._child else "~"
        headers = {f"{self._engine}/kernels/": "", f"{GIVEN}/": GIVEN_NAME}  # which nvcc names by their paths
        return headers | {f"{self._engine}/": "", str(self._engine): "engine", f"{home}/": "", str(home): "~"}
