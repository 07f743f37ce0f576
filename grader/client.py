"""Calls into a submission: sends inputs to a worker, waits no longer than a deadline, and judges how the call went.

Whatever goes wrong becomes a Failure. A worker that died, hung or answered nonsense, or whose device failed, is ended;
the next call starts another, so that it costs one check.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader import host_rules
from grader.arguments import Answer, Handle, MalformedAnswer, Request
from grader.compare import Failure
from grader.counters import Counters
from grader.errors import student_error, tidy
from grader.framing import ProtocolError
from grader.given.launch import Geometry, LaunchConfigError, LaunchFile
from grader.given.ops import CONTRACTS, Contract
from grader.process import Child

START_SECONDS = 90.0
MAX_RESULT = 64 << 20


class WorkerFault(Exception):
    """A worker cannot be started: a fault of the grader or of the machine, not of the submission."""


@dataclass
class Clock:
    """The deadlines of the running check: for the whole of it, and for each call half of that. In seconds.

    `last_call` is the text of the check's last call, for evidence.
    """

    call_seconds: float = 60.0
    deadline: float = float("inf")
    last_call: str = ""

    def start(self, check_seconds: float) -> None:
        """A check begins."""
        self.last_call = ""
        self.call_seconds = check_seconds / 2
        self.deadline = time.monotonic() + check_seconds

    def call_deadline(self) -> float:
        return min(self.deadline, time.monotonic() + self.call_seconds)


class Worker:
    """One submission on one device: the GPU or the emulator. Processes start with the first call."""

    def __init__(self, engine: Path, clock: Clock, *, emulated: bool, empty: bool = False) -> None:
        """`engine` holds kernels/, launch.toml and the Python files; `empty`: every kernel does nothing (emulator)."""
        self.engine = engine
        self.clock = clock
        self.emulated = emulated
        self._empty = empty
        self._child: Child | None = None
        self._generation = 0

    @property
    def last_call(self) -> str:
        """The text of the last call: operation, shapes, launch."""
        return self.clock.last_call

    # Calls

    def launch(self, op: str, *arguments: Any) -> Any:
        """Run the launcher `op` of given.ops on fresh device arrays; returns the Out and InOut arrays, in order.

        Arguments are the launcher's: Out(shape), InOut(array), arrays, scalars. Raises Failure.
        """
        return self._launch(op, arguments)[0]

    def time(self, op: str, *arguments: Any, repeats: int = 20) -> float:
        """Seconds of one launch on the device's own clock: the mean of `repeats` launches after a first one."""
        seconds = self._launch(op, arguments, repeats)[1].get("seconds")
        if not isinstance(seconds, float):
            raise self._ended(_malformed("a time that is no number"))
        return seconds

    def count(self, op: str, *arguments: Any) -> Counters:
        """As `launch`, with instrumented kernels: what the launch loaded, stored and synchronised. Emulator only."""
        with self._mode(counted=True) as device:
            self.launch(op, *arguments)
            return Counters.of_launches(device.control.counters())

    def call(self, target: "str | tuple[Handle, str]", *arguments: Any, limit: int = MAX_RESULT) -> Any:
        """Call "module.function" of the engine, or a method of a Handle; its results have at most `limit` bytes.

        With Out or InOut arguments these are returned, as by `launch`. Raises Failure; an exception of the student's
        code is a StudentError.
        """
        where: list[Any] = [target]
        if isinstance(target, str):
            name = target
            host_rules.refuse_violations(self.engine, target.partition(".")[0])
        else:
            name, where = f"{target[0].type_name}.{target[1]}", [self._current(target[0]), target[1]]
        request = Request(arguments, (), device=False, handle=self._current)
        self.clock.last_call = f"{name}({request.case})"
        header = {"verb": "call", "target": where, "arguments": request.tree, "limit": limit}
        answer, payload = self._exchange(header, request, limit)
        outputs = request.results(payload)
        if outputs:
            return outputs[0] if len(outputs) == 1 else outputs
        try:
            return Answer(payload[request.size :], self._handle).decode(answer.get("result"))
        except MalformedAnswer as error:
            raise self._ended(_malformed(str(error))) from None

    def release(self) -> None:
        """A check ended: the worker forgets its objects and device arrays; Handles end with it."""
        if self._child is not None:
            self._child.forget_printed()
            with contextlib.suppress(Failure):
                self._exchange({"verb": "release"}, Request((), (), device=False))

    def end(self) -> None:
        """End the processes, if there are any."""
        if self._child is not None:
            child, self._child = self._child, None
            child.end()

    # How a call goes

    def _launch(self, op: str, arguments: tuple[Any, ...], repeats: int = 0) -> tuple[Any, dict[str, Any]]:
        contract = CONTRACTS[op]
        request = Request(arguments, [*(array.name for array in contract.arrays), *contract.floats], device=True)
        self.clock.last_call = f"{op}({request.case}){self._geometry(contract, request)}"
        header = {"verb": "launch", "op": op, "arguments": request.tree, "repeats": repeats}
        answer, payload = self._exchange(header, request)
        outputs = request.results(payload)
        return outputs[0] if len(outputs) == 1 else outputs, answer

    def _exchange(self, header: dict[str, Any], request: Request, limit: int = 0) -> tuple[dict[str, Any], memoryview]:
        child = self._started()
        deadline = self.clock.call_deadline()
        try:
            answer, payload = child.exchange(header, request.payload, request.size + limit, deadline)
        except TimeoutError:
            raise self._ended(self._timeout()) from None
        except ProtocolError as error:
            raise self._ended(_malformed(str(error))) from None
        except (EOFError, OSError):
            raise self._ended(child.death()) from None
        if "error" in answer:
            raise self._raised(child, answer["error"])
        if answer.get("ok") is not True or len(payload) < request.size:
            raise self._ended(_malformed("an answer without its arrays"))
        return answer, payload

    def _raised(self, child: Child, report: Any) -> Failure:
        """The failure for an exception in the worker, which is ended where its device may be in no good state."""
        try:
            failure: Failure = student_error(report, self._scrub(child))
        except ValueError:
            return self._ended(_malformed("an error report of another form"))
        if isinstance(report, dict) and report.get("device") is not False:
            return self._ended(failure)
        return self._told(failure)

    def _ended(self, failure: Failure) -> Failure:
        """The failure, completed by what the processes leave behind; ends them."""
        child = self._child
        if child is not None:
            crash = child.device.control.crash_report() if child.device else None
            if crash:
                failure = _device_crash(tidy(crash, self._scrub(child)), failure)
            failure = self._told(failure)
            self.end()
        return failure

    def _told(self, failure: Failure) -> Failure:
        """The failure with what the code printed, where nothing better is known."""
        if "log" not in failure.evidence and (printed := self.printed()):
            failure.evidence["log"] = printed
        return failure

    def printed(self) -> str:
        """The end of what the code printed since the last `release`."""
        return tidy(self._child.printed(), self._scrub(self._child)).strip() if self._child else ""

    def _timeout(self) -> Failure:
        name = self.clock.last_call.partition("(")[0]
        if time.monotonic() >= self.clock.deadline:
            return Failure("TIMEOUT", f"The check took too long; it was ended during {name}.")
        message = (
            f"{name} did not return within {self.clock.call_seconds:g} s: "
            "look for a loop that does not end, or a barrier that some threads never reach."
        )
        return Failure("TIMEOUT", message)

    # The processes

    def _started(self) -> Child:
        if self._child is None:
            try:
                self._child = Child(emulated=self.emulated)
                self._generation += 1
                hello = {"verb": "hello", "engine": str(self.engine)}
                answer, _ = self._child.exchange(hello, b"", 0, time.monotonic() + START_SECONDS)
                if self._empty and self._child.device is not None:
                    self._child.device.control.set_mode(empty=True)
            except (OSError, EOFError, ProtocolError) as error:
                raise self._cannot_start(f"{type(error).__name__}: {error}") from error
            if answer.get("ok") is not True:
                raise self._cannot_start(str(answer.get("error")))
        return self._child

    def _cannot_start(self, reason: str) -> WorkerFault:
        printed = self._child.printed() if self._child else ""
        self.end()
        return WorkerFault(f"the process that runs submissions cannot be started ({reason})\n{printed}")

    @contextlib.contextmanager
    def _mode(self, *, counted: bool) -> Iterator[Any]:
        """The emulated device in another mode, while it lives."""
        device = self._started().device
        if device is None:
            raise TypeError("kernels are counted on the emulator only: use the fixture `emulator`")
        device.control.set_mode(counted=counted)
        try:
            yield device
        finally:
            if self._child is not None and self._child.device is device:
                device.control.set_mode(counted=False)

    def _current(self, handle: Handle) -> int:
        if handle.generation != self._generation or self._child is None:
            raise Failure("CRASHED", f"The {handle.type_name} was lost when the process that held it ended.")
        return handle.number

    def _handle(self, number: int, type_name: str) -> Handle:
        return Handle(number, tidy(type_name, {}), self._generation)

    def _scrub(self, child: Child) -> dict[str, str]:
        return {f"{self.engine}/": "", str(self.engine): "engine", f"{child.home}/": "", str(child.home): "~"}

    def _geometry(self, contract: Contract, request: Request) -> str:
        """The launch's block, grid and shared bytes as text; empty when they cannot be known."""
        dims: dict[str, int] = {}
        for spec, array in zip(contract.arrays, request.arrays, strict=False):
            dims |= dict(zip(spec.shape, array.shape, strict=False))
        try:
            if contract.name == "vector_add":
                return ""
            geometry: Geometry = LaunchFile(self.engine / "launch.toml").geometry(contract.name, dims)
        except (LaunchConfigError, NotImplementedError):
            return ""
        block, grid, shared = geometry
        return f", block {block}, grid {grid}, shared {shared} B"


def _malformed(what: str) -> Failure:
    return Failure("RUNTIME_ERROR", f"The process that runs the code sent something that is no answer: {what}.")


def _device_crash(report: str, failure: Failure) -> Failure:
    verdict = "OUT_OF_BOUNDS" if "address" in report else "CRASHED"
    return Failure(verdict, f"The kernel crashed: {report}", failure.evidence)
