"""The grader's decoder of results: a worker runs code that may answer anything, so nothing of an answer is believed."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from grader.worker.arguments import SHORT_NAMES, Handle
from grader.worker.codec import array_at, byte_size

DTYPES = (*SHORT_NAMES, "int8", "int16", "uint8", "uint16", "uint32", "uint64", "bool")
MAX_DEPTH = 8
MAX_DIMENSIONS = 32
MAX_TYPE_NAME = 80
NOT_AN_ARRAY = "an array whose shape, dtype and bytes do not fit together"


class MalformedAnswer(Exception):
    """A worker's answer does not have the form that an answer must have; the text says how."""


class StrictDecoder:
    """Decodes a result's tree, whose arrays lie in the payload one after the other. Raises MalformedAnswer."""

    def __init__(self, payload: memoryview, handle: Callable[[int, str], Handle]) -> None:
        self._payload = payload
        self._handle = handle
        self._end = 0
        """Where the last array ends."""
        self._known: dict[tuple[Any, ...], NDArray[Any]] = {}
        """Arrays by the content of their nodes: what is one array in the worker is one here."""

    def decode(self, node: Any, depth: int = 0) -> Any:
        if not isinstance(node, dict) or len(node) != 1 or depth > MAX_DEPTH:
            raise MalformedAnswer("a malformed result")
        ((kind, content),) = node.items()
        if kind == "value" and (content is None or isinstance(content, bool | int | float | str)):
            return content
        if kind in ("array", "scalar"):
            array = self._array(content)
            return array if kind == "array" else array[()]
        if not isinstance(content, list):
            raise MalformedAnswer(f"a result of unknown kind {kind!r:.40}")
        if kind == "list":
            return [self.decode(entry, depth + 1) for entry in content]
        if kind == "tuple":
            return tuple(self.decode(entry, depth + 1) for entry in content)
        if kind == "dict" and all(map(_is_item, content)):
            return {str(key): self.decode(entry, depth + 1) for key, entry in content}
        if kind == "handle" and len(content) == 2 and isinstance(content[0], int) and isinstance(content[1], str):
            return self._handle(content[0], content[1][:MAX_TYPE_NAME])
        raise MalformedAnswer(f"a result of unknown kind {kind!r:.40}")

    def _array(self, content: Any) -> NDArray[Any]:
        match content:
            case [str(dtype), list(shape), int(offset)] if dtype in DTYPES and _is_shape(shape):
                key = (dtype, *shape, offset)
                if key not in self._known:
                    self._known[key] = self._next_array(dtype, shape, offset)
                return self._known[key]
        raise MalformedAnswer(NOT_AN_ARRAY)

    def _next_array(self, dtype: str, shape: list[int], offset: int) -> NDArray[Any]:
        """A copy, so that arrays here never have more bytes together than the payload."""
        begin, self._end = self._end, self._end + byte_size(dtype, shape)
        if offset != begin or self._end > len(self._payload):
            raise MalformedAnswer(NOT_AN_ARRAY)
        try:
            return array_at(self._payload, dtype, shape, offset).copy()
        except ValueError:  # a shape that no array can have
            raise MalformedAnswer(NOT_AN_ARRAY) from None


def _is_item(entry: Any) -> bool:
    """Whether this is a key, which becomes a text, and a node."""
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], int | str)


def _is_shape(lengths: list[Any]) -> bool:
    return len(lengths) <= MAX_DIMENSIONS and all(isinstance(n, int) and 0 <= n < 1 << 63 for n in lengths)
