"""The memory of a pass over tokens: allocated once, then reused by every pass that is not larger."""

import math
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given.config import LlamaConfig
from pycuda import gpuarray
from pycuda.gpuarray import GPUArray

BF16 = np.dtype(ml_dtypes.bfloat16)

MAX_VIEWS = 1024
"""This many sets of views are remembered: a long-running server must not collect one for each length it meets."""


class Activations(NamedTuple):
    """What a pass over some number of tokens reads and writes: a row for each, bf16."""

    hidden: GPUArray  # [tokens, hidden_size]: the residual stream
    normed: GPUArray  # [tokens, hidden_size]
    branch: GPUArray  # [tokens, hidden_size]: what attention or the feed-forward block adds to the stream
    q: GPUArray  # [tokens, num_heads, head_dim]
    k: GPUArray  # [tokens, num_kv_heads, head_dim]
    v: GPUArray
    attended: GPUArray  # [tokens, num_heads, head_dim]
    q_rows: GPUArray  # q, k, v, attended as the matrices [tokens, heads · head_dim] that a linear layer takes
    k_rows: GPUArray
    v_rows: GPUArray
    attended_rows: GPUArray
    gate: GPUArray  # [tokens, intermediate_size]
    up: GPUArray
    gated: GPUArray

    @classmethod
    def allocate(cls, config: LlamaConfig, num_tokens: int) -> "Activations":
        def empty(*shape: int) -> GPUArray:
            return gpuarray.empty((num_tokens, *shape), BF16)

        num_heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads, config.num_heads)
        heads = [empty(number, config.head_dim) for number in num_heads]  # q, k, v, attended
        return cls._make(
            [empty(config.hidden_size) for _ in range(3)]
            + heads
            + [array.reshape(num_tokens, -1) for array in heads]
            + [empty(config.intermediate_size) for _ in range(3)]
        )


class Logits(NamedTuple):
    """[sequences, vocab_size] float32 each: a step may launch both before it reads either."""

    prefill: GPUArray
    decode: GPUArray

    @classmethod
    def allocate(cls, config: LlamaConfig, num_seqs: int) -> "Logits":
        return cls._make(gpuarray.empty((num_seqs, config.vocab_size), np.float32) for _ in cls._fields)


Arrays = TypeVar("Arrays", Activations, Logits)


class FirstRows(Generic[Arrays]):
    """The first rows of some arrays: views, made once for each number of rows."""

    def __init__(self, arrays: Arrays) -> None:
        self.size = arrays[0].shape[0]
        self._all = arrays
        self._views: dict[int, Arrays] = {}

    def __getitem__(self, count: int) -> Arrays:
        if count not in self._views:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            self._views[count] = self._all._make(array[:count] for array in self._all)
        return self._views[count]


class Staging:
    """Takes a pass's integers (ids, positions, tables …) to the GPU in one copy that is not waited for."""

    def __init__(self) -> None:
        self._size = 0
        self._turn = 0
        self._views: dict[tuple[tuple[int, ...], ...], list[GPUArray]] = {}

    def reserve(self, size: int) -> bool:
        """Make room for `size` integers. True where that moves the memory: earlier views are then not valid."""
        if size <= self._size:
            return False
        if self._size:
            cuda.Context.synchronize()  # a copy may still read the memory that goes
        self._size = max(size, 2 * self._size)  # a batch that grows shall not move it in each step
        self._views.clear()
        self._device = gpuarray.empty(self._size, np.int32)
        # Two in turn: while the copy from one may be under way, the next pass fills the other.
        self._hosts = [cuda.pagelocked_empty(self._size, np.int32) for _ in range(2)]
        self._copied = [cuda.Event() for _ in range(2)]
        return True

    def send(self, arrays: Sequence[np.ndarray], stream: cuda.Stream | None) -> list[GPUArray]:
        """The arrays as int32 arrays on the GPU, for the kernels launched until the next call. There must be room."""
        self._turn = 1 - self._turn
        host, copied = self._hosts[self._turn], self._copied[self._turn]
        copied.synchronize()  # returns at once unless two passes were launched without waiting for either
        end = 0
        for array in arrays:
            host[end : end + array.size] = array.ravel()
            end += array.size
        cuda.memcpy_htod_async(self._device.gpudata, host[:end], stream)
        copied.record(stream)
        return self._at(tuple([array.shape for array in arrays]))

    def _at(self, shapes: tuple[tuple[int, ...], ...]) -> list[GPUArray]:
        """Views of these shapes, one after the other."""
        if shapes not in self._views:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
            starts = [0, *ends[:-1]]
            self._views[shapes] = [
                self._device[start:end].reshape(shape) for start, end, shape in zip(starts, ends, shapes, strict=True)
            ]
        return self._views[shapes]
