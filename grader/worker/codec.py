"""The wire form of values between the grader and a worker: a JSON tree beside a payload of raw bytes.

A node of the tree is an object with one entry, its kind and its content. In both directions:

    {"value": null | bool | int | float | str}
    {"list": [node, …]}    {"tuple": [node, …]}    {"dict": [[int | str, node], …]}
    {"array": [dtype, shape, offset]}                 an array in host memory: its bytes begin at this offset
    {"handle": [number, type name]}                   an object that stays in the worker

In arguments only, with `zone` for a red zone of RED_ZONE bytes:

    {"device": [dtype, shape, offset, role]}          an array on the device: at the offset are zone, array, zone;
                                                      its role is "in", "out" (it holds nothing yet) or "inout"
    {"sparse": [dtype, shape, offset, rows]}          as much, zeros but for these rows; there are zone, rows, zone
    {"config": {field: JSON}}                         a LlamaConfig
    {"sampling": {field: node}}                       the fields of a SamplingParams

In results only:

    {"scalar": [dtype, [], offset]}                   a NumPy scalar, otherwise like an array

An answer's payload begins with the request's as it is after the call; offsets in results count from its end, and the
arrays of a result follow one another in the order of the tree. Both sides encode with `encode`. `decode` believes what
it reads: it is the worker's, for trees of the grader. The grader reads results with StrictDecoder.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

RED_ZONE = 1024
"""Bytes before and after each device array; a multiple of CUDA's alignment of allocations (256)."""

PLAIN = (bool, int, float, str)

Node = dict[str, Any]
Path = tuple[Any, ...]
"""Where a value lies: the keys and indices that lead to it."""


def encode(value: Any, encode_leaf: Callable[[Any, Path], Node], path: Path = ()) -> Node:
    """Returns the tree of plain values and containers; `encode_leaf` returns the node of anything else."""
    if value is None or type(value) in PLAIN:
        return {"value": value}
    if isinstance(value, Mapping):
        return {"dict": [[_key(key), encode(value[key], encode_leaf, (*path, key))] for key in value]}
    if isinstance(value, list | tuple):
        entries = [encode(entry, encode_leaf, (*path, i)) for i, entry in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": entries}
    return encode_leaf(value, path)


def decode(node: Node, decode_leaf: Callable[[str, Any], Any]) -> Any:
    """Returns the value of a tree that the grader sent; `decode_leaf` takes kind and content of any other node."""
    ((kind, content),) = node.items()
    match kind:
        case "value":
            return content
        case "dict":
            return {key: decode(entry, decode_leaf) for key, entry in content}
        case "list":
            return [decode(entry, decode_leaf) for entry in content]
        case "tuple":
            return tuple(decode(entry, decode_leaf) for entry in content)
    return decode_leaf(kind, content)


def array_content(array: NDArray[Any], offset: int) -> list[Any]:
    """The content of an array's node."""
    return [array.dtype.name, list(array.shape), offset]


def array_at(payload: memoryview, dtype: DTypeLike, shape: Sequence[int], offset: int) -> NDArray[Any]:
    """A view of an array in a payload; raises ValueError for a shape that no array can have."""
    return np.frombuffer(payload[offset : offset + byte_size(dtype, shape)], dtype).reshape(shape)


def byte_size(dtype: DTypeLike, shape: Sequence[int]) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


class Parts:
    """A payload in the making: its pieces, and their `size` together."""

    def __init__(self) -> None:
        self.size = 0
        self.pieces: list[bytes] = []

    def append(self, *pieces: bytes) -> int:
        """Returns the offset of the first of these pieces."""
        offset = self.size
        self.pieces += pieces
        self.size += sum(map(len, pieces))
        return offset


def _key(key: Any) -> int | str:
    """A key of a dictionary; whole numbers stay what they are."""
    return key if isinstance(key, int) else str(key)
