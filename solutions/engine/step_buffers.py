"""The memory of a pass over tokens: allocated once, then reused by every pass that is not larger.

No exercise of its own: part of how the solutions' model.py is organised, for which you may choose otherwise.
"""

import math
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given.config import LlamaConfig
from pycuda import gpuarray
from pycuda.gpuarray import GPUArray

BF16 = np.dtype(ml_dtypes.bfloat16)


class Activations(NamedTuple):
    """What a pass over some number of tokens, or some number of sequences, reads and writes: a row for each."""

    hidden: GPUArray  # [tokens, hidden_size] bf16: the residual stream
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
    prefill_logits: GPUArray  # [sequences, vocab_size] float32
    decode_logits: GPUArray


MAX_VIEWS = 1024
"""So many sets of views are remembered: a long-running server must not collect one for each length it meets."""


class Buffers:
    """The memory of passes over at most so many tokens and sequences; a pass uses the first rows of each array."""

    def __init__(self, config: LlamaConfig, max_num_tokens: int, max_num_seqs: int) -> None:
        def empty(*shape: int) -> GPUArray:
            return gpuarray.empty((max_num_tokens, *shape), BF16)

        self.max_num_tokens, self.max_num_seqs = max_num_tokens, max_num_seqs
        num_heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads, config.num_heads)
        heads = [empty(number, config.head_dim) for number in num_heads]  # q, k, v, attended
        logits = [gpuarray.empty((max_num_seqs, config.vocab_size), np.float32) for _ in range(2)]
        self._all = Activations._make(
            [empty(config.hidden_size) for _ in range(3)]
            + heads
            + [array.reshape(max_num_tokens, -1) for array in heads]
            + [empty(config.intermediate_size) for _ in range(3)]
            + logits
        )
        self._views: dict[int, Activations] = {}

    def rows(self, count: int) -> Activations:
        """The first rows of all arrays: a view, made once for a number of rows."""
        if count not in self._views:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            self._views[count] = Activations._make(array[:count] for array in self._all)
        return self._views[count]


class Integers:
    """Takes a pass's integers (ids, positions, tables …) to the GPU in one copy that nobody waits for."""

    def __init__(self) -> None:
        self.size = 0
        self._turn = 0
        self._views: dict[tuple[tuple[int, ...], ...], list[GPUArray]] = {}

    def reserve(self, size: int) -> None:
        """Make room for `size` integers."""
        if size <= self.size:
            return
        if self.size:
            cuda.Context.synchronize()  # a copy may still read the memory that goes
        self._views.clear()
        self._device = gpuarray.empty(size, np.int32)
        # Two in turn: while the copy from one may be under way, the next pass fills the other.
        self._hosts = [cuda.pagelocked_empty(size, np.int32) for _ in range(2)]
        self._copied = [cuda.Event() for _ in range(2)]
        self.size = size

    def send(self, *arrays: np.ndarray, stream: cuda.Stream | None = None) -> list[GPUArray]:
        """The arrays as int32 arrays on the GPU, for the kernels launched until the next call."""
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
        """Views of these shapes, one behind the other."""
        if shapes not in self._views:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
            starts = [0, *ends[:-1]]
            self._views[shapes] = [
                self._device[start:end].reshape(shape) for start, end, shape in zip(starts, ends, shapes, strict=True)
            ]
        return self._views[shapes]
