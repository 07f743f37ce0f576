"""The worker's side of a call's result: what the submission returned, as a tree and bytes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycuda.gpuarray import GPUArray

from grader.worker.codec import Node, Parts, Path, array_content, encode


class ReturnedValue:
    """Encodes what a call returned; arrays become bytes, objects of other classes stay in `objects` under a number."""

    def __init__(self, objects: list[Any], limit: int) -> None:
        """`limit`: the most bytes that the arrays may have, which are in `parts`."""
        self._objects = objects
        self._limit = limit
        self.parts = Parts()
        self._known: dict[int, tuple[list[Any], Any]] = {}  # an array in two places travels once

    def encode(self, value: Any) -> Node:
        return encode(value, self._encode_leaf)

    def keep(self, value: Any) -> Node:
        """The node of an object that stays here."""
        self._objects.append(value)
        return {"handle": [len(self._objects) - 1, type(value).__name__]}

    def _encode_leaf(self, value: Any, path: Path) -> Node:
        if isinstance(value, GPUArray):
            return {"array": self._add(value.get())}
        if isinstance(value, np.ndarray):
            if id(value) not in self._known:  # the array is kept too, so that no other gets its id
                self._known[id(value)] = self._add(value), value
            return {"array": self._known[id(value)][0]}
        if isinstance(value, np.generic):
            return {"scalar": self._add(np.asarray(value))}
        return self.keep(value)

    def _add(self, array: NDArray[Any]) -> list[Any]:
        if array.dtype.kind not in "biufV":  # V: NumPy's kind for bfloat16
            raise TypeError(f"the call returned an array of dtype {array.dtype}")
        size = self.parts.size + array.nbytes
        if size > self._limit:
            raise ValueError(f"the call returned {size} bytes or more; at most {self._limit} are right")
        return array_content(array, self.parts.append(array.tobytes()))
