"""Arguments of calls into a worker: their types, how they are sent, and what is checked when their arrays come back.

A device array travels with a red zone on both sides. Every array that was sent comes back whole, so that the parent
sees what was written outside of an output and whether an input changed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from given.config import LlamaConfig
from given.requests import SamplingParams
from numpy.typing import DTypeLike, NDArray

from grader.failure import Failure
from grader.worker.codec import RED_ZONE, Node, Parts, Path, array_at, array_content, byte_size, encode

BF16 = np.dtype(ml_dtypes.bfloat16)
MAX_SHOWN = 8
"""Elements of a vector that the text of a call shows."""
SHORT_NAMES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}

_random = np.random.default_rng()  # red zones only: no value of a check depends on it


@dataclass(frozen=True)
class Out:
    """A device array that the call must fill; floats start as NaN, integers as a pattern."""

    shape: int | tuple[int, ...]
    dtype: DTypeLike = BF16


@dataclass(frozen=True)
class Sparse:
    """A device array of a launch, too large to send: zeros but for these rows of its first axis, by their number.

    Alone an input, in an InOut the given rows come back as such a mapping; all others must stay zero. Emulator only.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    rows: Mapping[int, NDArray[Any]]


@dataclass(frozen=True)
class InOut:
    """A device array that the call changes in place."""

    array: NDArray[Any] | Sparse


@dataclass(frozen=True)
class OnDevice:
    """An input of `call` that is on the device; of `launch` every plain array is."""

    array: NDArray[Any]


@dataclass(frozen=True)
class Handle:
    """An object that stays in the worker. `method("forward")` is a target for `call`."""

    number: int
    type_name: str
    generation: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"<{self.type_name}>"

    def method(self, name: str) -> tuple["Handle", str]:
        return self, name


class Sampling:
    """Fields of a SamplingParams, unchecked: it is made in the worker, where fields that mean nothing raise."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def __repr__(self) -> str:
        return f"SamplingParams({', '.join(f'{name}={value!r}' for name, value in self.fields.items())})"


@dataclass
class Sent:
    """One array in the payload of a request."""

    name: str
    role: str
    """`in`, `out` or `inout`."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    zone: int
    """Bytes of each red zone: RED_ZONE, or 0 for an array in host memory."""
    rows: tuple[int, ...] | None = None
    """The rows of a Sparse array that travel, ascending; None: all."""

    @property
    def sent_shape(self) -> tuple[int, ...]:
        return self.shape if self.rows is None else (len(self.rows), *self.shape[1:])

    @property
    def row_bytes(self) -> int:
        return byte_size(self.dtype, self.shape[1:])

    @property
    def size(self) -> int:
        """Bytes that travel between the red zones."""
        return byte_size(self.dtype, self.sent_shape)

    @property
    def total(self) -> int:
        return self.size + 2 * self.zone

    def content(self, payload: memoryview) -> NDArray[Any]:
        return array_at(payload, self.dtype, self.sent_shape, self.offset + self.zone)

    def result(self, payload: memoryview) -> Any:
        """A copy of the content, of a Sparse array as a mapping from each row's number to the row."""
        content = self.content(payload).copy()
        return content if self.rows is None else dict(zip(self.rows, content, strict=True))

    def label(self) -> str:
        return f"{self.name}{list(self.shape)} {self.short_dtype}"

    @property
    def short_dtype(self) -> str:
        return SHORT_NAMES.get(self.dtype.name, self.dtype.name)


class CallPayload:
    """The arguments of one call: a JSON tree, the bytes of all arrays, and what to check when these come back."""

    def __init__(
        self,
        arguments: Sequence[Any],
        names: Sequence[str],
        *,
        device: bool,
        handle: Callable[[Handle], int] = lambda handle: handle.number,
        keywords: Mapping[str, Any] | None = None,
    ) -> None:
        """`device`: plain arrays are device arrays, as in a launch; `handle` gives the number of a live Handle."""
        self.arrays: list[Sent] = []
        self._device = device
        self._handle = handle
        self._parts = Parts()
        names = [*names, *(f"argument {i + 1}" for i in range(len(names), len(arguments)))]
        keywords = keywords or {}
        named = [*zip(names, arguments, strict=False), *keywords.items()]
        self.tree = [self._encode(argument, name) for name, argument in named[: len(arguments)]]
        self.keywords = {name: self._encode(argument, name) for name, argument in keywords.items()}
        self.case = ", ".join(self._label(argument, name) for name, argument in named)
        self.size = self._parts.size
        self.payload = b"".join(self._parts.pieces)

    def results(self, payload: memoryview) -> tuple[Any, ...]:
        """Copies of the Out and InOut arrays; raises Failure when a red zone or an input changed."""
        for sent in self.arrays:
            _check_red_zones(sent, memoryview(self.payload), payload)
        for sent in self.arrays:
            if sent.role == "in":
                _check_unchanged(sent, sent.content(memoryview(self.payload)), sent.content(payload))
        return tuple(sent.result(payload) for sent in self.arrays if sent.role != "in")

    def _encode(self, value: Any, name: str) -> Node:
        return encode(value, self._encode_leaf, (name,))

    def _encode_leaf(self, value: Any, path: Path) -> Node:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool | int | float | str):
            return {"value": value}
        name = path[0] + "".join(f"[{key!r}]" for key in path[1:])
        if isinstance(value, np.ndarray):
            return self._encode_array(value, name, "in", RED_ZONE if self._device else 0)
        if isinstance(value, Out):
            return self._encode_array(_unwritten(value), name, "out", RED_ZONE)
        if isinstance(value, OnDevice | InOut):
            role = "in" if isinstance(value, OnDevice) else "inout"
            if isinstance(value.array, Sparse):
                return self._encode_sparse(value.array, name, role)
            return self._encode_array(value.array, name, role, RED_ZONE)
        if isinstance(value, Sparse):
            return self._encode_sparse(value, name, "in")
        return self._encode_object(value, name)

    def _encode_object(self, value: Any, name: str) -> Node:
        if isinstance(value, Handle):
            return {"handle": [self._handle(value), value.type_name]}
        if isinstance(value, LlamaConfig):
            return {"config": asdict(value)}
        if isinstance(value, Sampling | SamplingParams):
            fields = value.fields if isinstance(value, Sampling) else asdict(value)
            return {"sampling": {key: self._encode(entry, f"{name}.{key}") for key, entry in fields.items()}}
        raise TypeError(f"{name}: a {type(value).__name__} cannot be sent to a worker")

    def _encode_array(self, array: NDArray[Any], name: str, role: str, zone: int) -> Node:
        offset = self._parts.append(_red_zone(zone), np.ascontiguousarray(array).tobytes(), _red_zone(zone))
        self.arrays.append(Sent(name, role, array.dtype, array.shape, offset, zone))
        content = array_content(array, offset)
        return {"device": [*content, role != "out"]} if zone else {"array": content}

    def _encode_sparse(self, array: Sparse, name: str, role: str) -> Node:
        if not self._device:
            raise TypeError(f"{name}: a Sparse array is an argument of launches only")
        dtype, rows = np.dtype(array.dtype), tuple(sorted(array.rows))
        sent = Sent(name, role, dtype, tuple(array.shape), self._parts.size, RED_ZONE, rows)
        contents = [np.asarray(array.rows[row], dtype) for row in rows]
        if any(content.shape != sent.shape[1:] for content in contents) or not rows:
            raise ValueError(f"{name}: rows of shape {list(sent.shape[1:])} are wanted, one at least")
        self.arrays.append(sent)
        self._parts.append(_red_zone(RED_ZONE), *[content.tobytes() for content in contents], _red_zone(RED_ZONE))
        return {"sparse": [dtype.name, list(sent.shape), sent.offset, list(rows)]}

    def _label(self, argument: Any, name: str) -> str:
        for sent in self.arrays:
            if sent.name == name:
                return sent.label() + _values(argument, sent)
        if isinstance(argument, LlamaConfig):
            shown = [f"{key}={getattr(argument, key)!r}" for key in ("head_dim", "rope_theta", "rope_scaling")]
            return f"{name}=LlamaConfig({', '.join(shown)}, …)"
        if isinstance(argument, Handle):
            return f"{name}={argument.type_name}"
        text = repr(argument)
        return f"{name}={text if len(text) <= 80 else text[:79] + '…'}"


def _values(argument: Any, sent: Sent) -> str:
    """What a small array holds, as the end of its label; of arrays on the device integers only."""
    array = getattr(argument, "array", argument)
    is_shown = isinstance(array, np.ndarray) and (array.dtype.kind in "iub" or not sent.zone)
    if not is_shown or array.size > MAX_SHOWN or array.ndim != 1:
        return ""
    return f" = [{', '.join(f'{value:.6g}' if isinstance(value, float) else str(value) for value in array.tolist())}]"


def _red_zone(size: int) -> bytes:
    """Words that are NaN as bf16 and float32, and huge as integers: a read past the end shows in the result."""
    return (0x7FC0 | _random.integers(64, size=size // 2)).astype("<u2").tobytes()


def _unwritten(out: Out) -> NDArray[Any]:
    dtype = np.dtype(out.dtype)
    shape = (out.shape,) if isinstance(out.shape, int) else tuple(out.shape)
    pattern = 0xA5 if dtype.kind in "iub" else 0xFF  # 0xFF… is NaN in every floating-point format
    return np.frombuffer(bytes([pattern]) * (math.prod(shape) * dtype.itemsize), dtype).reshape(shape)


def _check_red_zones(sent: Sent, before: memoryview, after: memoryview) -> None:
    start, end = sent.offset, sent.offset + sent.total
    # Each zone from the array outwards, so that the last changed byte is the farthest.
    zones = {
        "before the start": slice(start + sent.zone - 1, start - 1 if start else None, -1),
        "past the end": slice(end - sent.zone, end),
    }
    if not sent.zone:
        return
    old, new = np.frombuffer(before, np.uint8), np.frombuffer(after, np.uint8)
    for where, zone in zones.items():
        changed = np.flatnonzero(old[zone] != new[zone])
        if changed.size:
            farthest = int(changed[-1]) // sent.dtype.itemsize + 1
            count = f"{farthest} element{'s' if farthest > 1 else ''}"
            array = f"{sent.name} (shape {list(sent.shape)}, {sent.short_dtype})"
            raise Failure("OUT_OF_BOUNDS", f"Memory was written up to {count} {where} of {array}.")


def _check_unchanged(sent: Sent, before: NDArray[Any], after: NDArray[Any]) -> None:
    elements = np.any(before.reshape(-1, 1).view(np.uint8) != after.reshape(-1, 1).view(np.uint8), axis=1)
    if elements.any():
        index = [int(i) for i in np.unravel_index(int(elements.argmax()), sent.sent_shape)]
        if sent.rows is not None:
            index[0] = sent.rows[index[0]]
        message = (
            f"The input {sent.name} was changed by the call: {int(elements.sum()):,} of {elements.size:,} elements, "
            f"the first at {sent.name}{index}."
        )
        raise Failure("INPUT_MODIFIED", message)
