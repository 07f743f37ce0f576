"""What a check calls: launches of a submission's kernels and calls of its Python, on the GPU or on the emulator.

Kernels are launched in a process that never runs the submission's Python, which could pretend to be the launchers.
"""

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from given.contracts import CONTRACTS, Contract
from given.launch import LaunchFile

from grader.failure import Failure
from grader.observe.counters import Counters
from grader.observe.device_activity import DeviceActivity
from grader.observe.findings import MAX_CHECKED, ORDERS, order_failure
from grader.worker import source_rules as host_rules
from grader.worker.arguments import CallPayload, Handle
from grader.worker.connection import Connection, Deadlines
from grader.worker.strict_decoder import MalformedAnswer, StrictDecoder
from grader.worker.student_errors import tidy

MAX_RESULT = 64 << 20
ROUNDING = {2: 2.0**-6, 4: 2.0**-12}
"""By bytes of an element, part of a result and of the largest among them: two units in the last place of bf16; what
16,384 float32 terms lose when they are added in another order."""


class Worker:
    """One submission on one device. Its processes start with the first launch and the first call."""

    def __init__(self, engine: Path, deadlines: Deadlines, *, emulated: bool, empty: bool = False) -> None:
        """`engine` holds kernels/, launch.toml and the Python files; `empty`: every kernel does nothing (emulator)."""
        self.engine = engine
        self._deadlines = deadlines
        self._kernels = Connection(engine, deadlines, emulated=emulated, empty=empty)
        self._host = Connection(engine, deadlines, emulated=emulated, empty=empty)
        self._remarks: list[str] = []
        self._can_check = emulated and not empty
        self._checked_before: set[Any] = set()  # kernels with their shapes, in this check
        self._ordered: dict[str, int] = {}  # of each kernel the largest launch that ran in several orders

    @property
    def last_call(self) -> str:
        """The text of the last call: operation, shapes, launch."""
        return self._deadlines.last_call

    def launch(self, op: str, *arguments: Any) -> Any:
        """Run the launcher `op` of given.ops on fresh device arrays; returns the Out and InOut arrays, in order.

        Arguments are the launcher's: Out(shape), InOut(array), arrays, scalars. Raises Failure.
        On the emulator a launch on small arrays is checked for races and the like: once for all of the same shapes in a
        check, those larger than the kernel's before in several orders of its threads.
        """
        case = op, *map(_shape, arguments)
        if case in self._checked_before or not self._is_checked(op, arguments):
            return self._launch(op, arguments)[0]
        self._checked_before.add(case)
        size = sum(_sizes(arguments))
        orders = ORDERS if size > self._ordered.get(op, -1) else ORDERS[:1]
        self._ordered[op] = max(size, self._ordered.get(op, -1))
        results = []
        for order in orders:
            with self._kernels.observing(checked=True, order=order):
                results.append(self._launch(op, arguments)[0])
        if any(not _agree(result, results[0]) for result in results[1:]):
            raise order_failure(op)
        return results[0]

    def time(self, op: str, *arguments: Any, repeats: int = 20) -> float:
        """Seconds of one launch on the device's own clock: the mean of `repeats` launches after a first one."""
        return self.timed(op, *arguments, repeats=repeats)[1]

    def timed(self, op: str, *arguments: Any, repeats: int = 20) -> tuple[Any, float]:
        """What `launch` returns, after all launches, and what `time` does."""
        outputs, answer = self._launch(op, arguments, repeats)
        return outputs, self._seconds(answer)

    def copy_time(self, size: int, repeats: int = 20) -> float:
        """Seconds of a copy of `size` bytes on the device, measured as a launch is."""
        header = {"verb": "copy", "bytes": size, "repeats": repeats}
        return self._seconds(self._kernels.exchange(header, CallPayload((), (), device=True))[0])

    def count(self, op: str, *arguments: Any) -> Counters:
        """As `launch`, with instrumented kernels: what the launch loaded, stored and synchronised. Emulator only."""
        is_checked = self._is_checked(op, arguments)
        with self._kernels.observing(counted=True, checked=is_checked, profiled=True) as seen:
            self._launch(op, arguments)
        if len(seen.kernels) != 1:
            raise ValueError(f"{len(seen.kernels)} launches were counted; one was expected")
        name, counters = seen.kernels[0]
        return replace(counters, sites=seen.profiles[name].sites if name in seen.profiles else ())

    def remark(self, sentence: str) -> None:
        """Say something of the submission that costs no points."""
        self._remarks.append(sentence)

    def take_remarks(self) -> list[str]:
        """What was remarked since the last time, each once."""
        taken, self._remarks = list(dict.fromkeys(self._remarks)), []
        return taken

    def observe(self, counted: bool = False) -> AbstractContextManager[DeviceActivity]:
        """Watch what the calls in a `with` block let the device do; its DeviceActivity is complete after it.

        With `counted`, kernels run instrumented, some ten times slower, and each launch has its Counters.
        Copies of device arrays among arguments and results count too. Raises Failure when the process ended meanwhile.
        """
        return self._host.observing(counted=counted)

    def limit_memory(self, limit: int | None) -> None:
        """Until the check ends, let no allocation succeed that would bring the memory in use beyond `limit` bytes.

        It may be less than what is in use already; None lifts the limit. Emulator only.
        """
        self._kernels.limit_memory(limit)
        self._host.limit_memory(limit)

    def call(
        self,
        target: "str | tuple[Handle, str]",
        *arguments: Any,
        keywords: Mapping[str, Any] | None = None,
        limit: int = MAX_RESULT,
        keep: bool = False,
        checked: bool = False,
    ) -> Any:
        """Call "module.function" of the engine, or a method of a Handle; its results have at most `limit` bytes.

        A target with a colon is no part of the engine: "numpy.random:default_rng" makes an object to pass on.
        With Out or InOut arguments these are returned, as by `launch`; with `keep`, a Handle of whatever is returned.
        A named tuple comes back as a tuple; objects of other classes stay in the worker as Handles.
        With `checked`, the emulator checks every kernel that the call launches, as small launches are.
        Raises Failure; an exception of the student's code is a StudentError.
        """
        where: list[Any] = [target]
        names: list[str] = []
        if isinstance(target, str):
            name, names = target, host_rules.parameter_names(self.engine, target)
            host_rules.refuse_violations(self.engine, target.partition(".")[0])
        else:
            name, where = f"{target[0].type_name}.{target[1]}", [self._current(target[0]), target[1]]
            names = host_rules.method_parameters(self.engine, target[0].type_name, target[1])
        request = CallPayload(arguments, names, device=False, handle=self._current, keywords=keywords)
        self._deadlines.last_call = f"{name}({request.case})"
        header = {"verb": "call", "target": where, "limit": limit, "keep": keep}
        header |= {"arguments": request.tree, "keywords": request.keywords}
        watched: AbstractContextManager[Any] = contextlib.nullcontext()
        if checked and self._can_check:
            watched = self._host.observing(checked=True)
        with watched:
            answer, payload = self._host.exchange(header, request, limit)
        outputs = request.results(payload)
        if outputs:
            return outputs[0] if len(outputs) == 1 else outputs
        try:
            return StrictDecoder(payload[request.size :], self._handle).decode(answer.get("result"))
        except MalformedAnswer as error:
            raise self._host.malformed(str(error)) from None

    def host_memory(self) -> int:
        """Bytes of memory of its own that the process of the submission's Python holds; mapped files do not count."""
        return self._host.memory()

    def printed(self) -> str:
        """What the code printed since the last `release`, its first and last lines."""
        return "\n".join(filter(None, (self._kernels.printed(), self._host.printed())))

    def release(self) -> None:
        """A check ended: Handles and printed text end with it."""
        self._kernels.release()
        self._host.release()
        self._checked_before.clear()
        self._ordered.clear()

    def end(self) -> None:
        """End the processes, if there are any."""
        self._kernels.end()
        self._host.end()

    def _launch(self, op: str, arguments: tuple[Any, ...], repeats: int = 0) -> tuple[Any, dict[str, Any]]:
        contract = CONTRACTS[op]
        request = CallPayload(arguments, [*(array.name for array in contract.arrays), *contract.floats], device=True)
        self._deadlines.last_call = f"{op}({request.case}){self._geometry(contract, request)}"
        header = {"verb": "launch", "op": op, "arguments": request.tree, "repeats": repeats}
        answer, payload = self._kernels.exchange(header, request)
        outputs = request.results(payload)
        self._check_sparse(request, answer)
        return outputs[0] if len(outputs) == 1 else outputs, answer

    def _is_checked(self, op: str, arguments: tuple[Any, ...]) -> bool:
        """Whether a launch is small enough to be checked."""
        return self._can_check and all(size <= MAX_CHECKED for size in _sizes(arguments))

    def _check_sparse(self, request: CallPayload, answer: dict[str, Any]) -> None:
        """Raise Failure when the launch wrote to rows of a Sparse array that were not given."""
        arrays = [sent for sent in request.arrays if sent.rows is not None]
        pointers = answer.get("sparse")
        if not isinstance(pointers, list) or len(pointers) != len(arrays):
            raise self._kernels.malformed("another number of addresses than of arrays")
        for sent, pointer in zip(arrays, pointers, strict=True):
            assert sent.rows is not None
            given = [(row * sent.row_bytes, (row + 1) * sent.row_bytes) for row in sent.rows]
            offset = self._kernels.first_written(pointer, sent.shape[0] * sent.row_bytes, given)
            if offset is not None:
                index = [int(i) for i in np.unravel_index(offset // sent.dtype.itemsize, sent.shape)]
                message = f"{sent.name}{index} was written, in a row that the launch must leave alone."
                raise Failure("OUT_OF_BOUNDS", message)

    def _seconds(self, answer: dict[str, Any]) -> float:
        if not isinstance(answer.get("seconds"), float):
            raise self._kernels.malformed("a time that is not a number")
        return float(answer["seconds"])

    def _geometry(self, contract: Contract, request: CallPayload) -> str:
        """The launch's block, grid and shared bytes as text; empty when they cannot be known."""
        dims: dict[str, int] = {}
        for spec, array in zip(contract.arrays, request.arrays, strict=False):
            dims |= dict(zip(spec.shape, array.shape, strict=False))
        try:
            block, grid, shared = LaunchFile(self.engine / "launch.toml").geometry(contract.name, dims)
        except Exception:  # the launch itself says what is wrong
            return ""
        return f", block {block}, grid {grid}, shared {shared} B"

    def _current(self, handle: Handle) -> int:
        if handle.generation != self._host.generation:
            raise Failure("CRASHED", f"The {handle.type_name} was lost when the process that held it ended.")
        return handle.number

    def _handle(self, number: int, type_name: str) -> Handle:
        return Handle(number, tidy(type_name, {}), self._host.generation)


def _shape(argument: Any) -> Any:
    """The shape of an array argument, None of any other."""
    return getattr(getattr(argument, "array", argument), "shape", None)


def _sizes(arguments: tuple[Any, ...]) -> list[int]:
    """The numbers of elements of the array arguments."""
    return [int(np.prod(shape)) for shape in map(_shape, arguments) if shape is not None]


def _agree(one: Any, other: Any) -> bool:
    """Whether two results of a launch, arrays or tuples of them, are the same but for the rounding of sums.

    The order of atomic additions of floats is nobody's mistake.
    """
    if isinstance(one, tuple):
        return all(map(_agree, one, other))
    if isinstance(one, Mapping):
        return all(_agree(one[row], other[row]) for row in one)
    if one.tobytes() == other.tobytes() or np.issubdtype(one.dtype, np.integer):
        return bool(one.tobytes() == other.tobytes())
    with np.errstate(invalid="ignore"):
        a, b = one.astype(np.float64), other.astype(np.float64)
        scale = np.max(np.abs(a), where=np.isfinite(a), initial=0.0)
        rounding = ROUNDING[one.dtype.itemsize]
        return bool(np.allclose(a, b, rtol=rounding, atol=rounding * scale, equal_nan=True))
