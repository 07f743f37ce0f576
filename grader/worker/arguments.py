"""Arguments and results of calls into a worker: their types, and how they travel as a JSON tree and raw bytes.

A device array travels with a red zone on both sides. Every array that was sent comes back whole, so that the parent
sees what was written outside of an output and whether an input changed.
"""

import contextlib
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

BF16 = np.dtype(ml_dtypes.bfloat16)
RED_ZONE = 1024
"""Bytes before and after each device array; a multiple of CUDA's alignment of allocations (256)."""

SHORT_NAMES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}
DTYPES = (*SHORT_NAMES, "int8", "int16", "uint8", "uint16", "uint32", "uint64", "bool")
MAX_DEPTH = 8

_random = np.random.default_rng()  # red zones only: no value of a check depends on it


class MalformedAnswer(Exception):
    """A worker's answer does not have the form that an answer must have; the text says how."""


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
    """Bytes of each red zone: 0 for an array in host memory."""
    rows: tuple[int, ...] | None = None
    """The rows of a Sparse array that travel, ascending; None: all."""

    @property
    def sent_shape(self) -> tuple[int, ...]:
        return self.shape if self.rows is None else (len(self.rows), *self.shape[1:])

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def size(self) -> int:
        """Bytes that travel between the red zones."""
        return math.prod(self.sent_shape) * self.dtype.itemsize

    @property
    def total(self) -> int:
        return self.size + 2 * self.zone

    def content(self, payload: memoryview) -> NDArray[Any]:
        start = self.offset + self.zone
        return np.frombuffer(payload[start : start + self.size], self.dtype).reshape(self.sent_shape)

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
        self.size = 0
        self._device = device
        self._handle = handle
        self._parts: list[bytes] = []
        names = [*names, *(f"argument {i + 1}" for i in range(len(names), len(arguments)))]
        keywords = keywords or {}
        named = [*zip(names, arguments, strict=False), *keywords.items()]
        self.tree = [self._encode(argument, name) for name, argument in named[: len(arguments)]]
        self.keywords = {name: self._encode(argument, name) for name, argument in keywords.items()}
        self.case = ", ".join(self._label(argument, name) for name, argument in named)
        self.payload = b"".join(self._parts)

    def results(self, payload: memoryview) -> tuple[Any, ...]:
        """Copies of the Out and InOut arrays; raises Failure when a red zone or an input changed."""
        for sent in self.arrays:
            _check_red_zones(sent, memoryview(self.payload), payload)
        for sent in self.arrays:
            if sent.role == "in":
                _check_unchanged(sent, sent.content(memoryview(self.payload)), sent.content(payload))
        return tuple(sent.result(payload) for sent in self.arrays if sent.role != "in")

    def _encode(self, value: Any, name: str) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return {"value": value}
        if isinstance(value, np.ndarray):
            return self._encode_array(value, name, "in", RED_ZONE if self._device else 0)
        if isinstance(value, OnDevice | InOut):
            role = "in" if isinstance(value, OnDevice) else "inout"
            if isinstance(value.array, Sparse):
                return self._encode_sparse(value.array, name, role)
            return self._encode_array(value.array, name, role, RED_ZONE)
        if isinstance(value, Out):
            return self._encode_array(_unwritten(value), name, "out", RED_ZONE)
        if isinstance(value, Mapping):
            entries = [[_key(key), self._encode(entry, f"{name}[{key!r}]")] for key, entry in value.items()]
            return {"dict": entries}
        if isinstance(value, list | tuple):
            entries = [self._encode(entry, f"{name}[{i}]") for i, entry in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": entries}
        return self._encode_object(value, name)

    def _encode_object(self, value: Any, name: str) -> Any:
        if isinstance(value, Sparse):
            return self._encode_sparse(value, name, "in")
        if isinstance(value, Handle):
            return {"handle": self._handle(value)}
        if isinstance(value, LlamaConfig):
            return {"config": asdict(value)}
        if isinstance(value, Sampling | SamplingParams):
            fields = value.fields if isinstance(value, Sampling) else asdict(value)
            return {"sampling": {key: self._encode(entry, f"{name}.{key}") for key, entry in fields.items()}}
        raise TypeError(f"{name}: a {type(value).__name__} cannot be sent to a worker")

    def _encode_array(self, array: NDArray[Any], name: str, role: str, zone: int) -> Any:
        sent = Sent(name, role, array.dtype, array.shape, self.size, zone)
        self.arrays.append(sent)
        self._parts += [_red_zone(zone), np.ascontiguousarray(array).tobytes(), _red_zone(zone)]
        self.size += sent.total
        return {"array": [array.dtype.name, list(array.shape), sent.offset, zone, role != "out"]}

    def _encode_sparse(self, array: Sparse, name: str, role: str) -> Any:
        if not self._device:
            raise TypeError(f"{name}: a Sparse array is an argument of launches only")
        dtype, rows = np.dtype(array.dtype), tuple(sorted(array.rows))
        sent = Sent(name, role, dtype, tuple(array.shape), self.size, RED_ZONE, rows)
        contents = [np.asarray(array.rows[row], dtype) for row in rows]
        if any(content.shape != sent.shape[1:] for content in contents) or not rows:
            raise ValueError(f"{name}: rows of shape {list(sent.shape[1:])} are wanted, one at least")
        self.arrays.append(sent)
        self._parts += [_red_zone(RED_ZONE), *[content.tobytes() for content in contents], _red_zone(RED_ZONE)]
        self.size += sent.total
        return {"sparse": [dtype.name, list(sent.shape), sent.offset, RED_ZONE, list(rows)]}

    def _label(self, argument: Any, name: str) -> str:
        for sent in self.arrays:
            if sent.name == name:
                return sent.label()
        if isinstance(argument, LlamaConfig):
            shown = [f"{key}={getattr(argument, key)!r}" for key in ("head_dim", "rope_theta", "rope_scaling")]
            return f"{name}=LlamaConfig({', '.join(shown)}, …)"
        if isinstance(argument, Handle):
            return f"{name}={argument.type_name}"
        text = repr(argument)
        return f"{name}={text if len(text) <= 80 else text[:79] + '…'}"


def _key(key: Any) -> int | str:
    """A key of a dictionary; whole numbers stay what they are."""
    return key if isinstance(key, int) else str(key)


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


class Answer:
    """Reads a result tree. Every array must lie in the payload and every node have a known form."""

    def __init__(self, payload: memoryview, handle: Callable[[int, str], Handle]) -> None:
        self.payload = payload
        self.handle = handle
        self.known: dict[str, NDArray[Any]] = {}  # what is one array in the worker is one here

    def decode(self, node: Any, depth: int = 0) -> Any:
        if not isinstance(node, dict) or len(node) != 1 or depth > MAX_DEPTH:
            raise MalformedAnswer("a result that is no result")
        ((kind, value),) = node.items()
        if kind == "value" and (value is None or isinstance(value, bool | int | float | str)):
            return value
        if kind in ("array", "scalar"):
            array = self.known.setdefault(repr(value), self._array(value))
            return array if kind == "array" else array[()]
        if not isinstance(value, list):
            raise MalformedAnswer(f"a result of unknown kind {kind!r:.40}")
        if kind == "handle" and len(value) == 2 and isinstance(value[0], int) and isinstance(value[1], str):
            return self.handle(value[0], value[1][:80])
        if kind == "list":
            return [self.decode(entry, depth + 1) for entry in value]
        if kind == "tuple":
            return tuple(self.decode(entry, depth + 1) for entry in value)
        if kind == "dict" and all(isinstance(e, list) and len(e) == 2 and isinstance(e[0], str) for e in value):
            return {entry[0]: self.decode(entry[1], depth + 1) for entry in value}
        raise MalformedAnswer(f"a result of unknown kind {kind!r:.40}")

    def _array(self, value: Any) -> NDArray[Any]:
        match value:
            case [str(name), [*lengths], int(offset)] if name in DTYPES and offset >= 0:
                shape = tuple(length for length in lengths if isinstance(length, int) and length >= 0)
                size = math.prod(shape) * np.dtype(name).itemsize
                if len(shape) == len(lengths) <= 32 and offset + size <= len(self.payload):
                    with contextlib.suppress(ValueError):  # a shape that no array has
                        return np.frombuffer(self.payload[offset : offset + size], name).reshape(shape).copy()
        raise MalformedAnswer("an array whose shape, dtype and bytes do not fit together")
