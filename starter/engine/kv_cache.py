"""The contiguous KV cache: keys and values of all tokens so far, one row of `max_length` positions per sequence.

Owns the memory and each sequence's length, and does not compute: kernels/write_kv.cu writes keys and values into it.
"""

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given import ops
from given.config import LlamaConfig
from given.requests import RequestTooLong
from pycuda import gpuarray
from pycuda.gpuarray import GPUArray

BF16 = np.dtype(ml_dtypes.bfloat16)


class KVCache:
    """Keys and values of `num_slots` sequences, which are the numbers 0 … num_slots − 1.

    `num_slots` and `max_length` are attributes; `key_caches` and `value_caches` have one array per layer,
    [num_slots, max_length, num_kv_heads, head_dim] bf16. Every method that takes a sequence raises ValueError for a
    number that is none of them.
    """

    def __init__(self, config: LlamaConfig, num_slots: int, max_length: int) -> None:
        """All sequences are empty. ValueError unless there is a sequence and a length that the model can reach."""
        raise NotImplementedError("s09.3")  # TODO s09.3: memory of all layers, a length per sequence

    def length(self, sequence: int) -> int:
        """How many tokens of the sequence are stored."""
        raise NotImplementedError("s09.3")  # TODO s09.3: look it up

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether `extend` would find room; {sequence: further tokens}."""
        raise NotImplementedError("s09.3")  # TODO s09.3: no sequence may outgrow its row

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Reserve room for counts[sequence] further tokens of each sequence.

        Returns where they go, for write_kv: rows sequence · max_length + position, int32, the tokens of one sequence
        after those of the other in the order of `counts`. Raises RequestTooLong for more than max_length tokens,
        ValueError for an unknown sequence; then nothing has changed.
        """
        raise NotImplementedError("s09.3")  # TODO s09.3: behind what is there

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As `extend`, but each of these sequences begins anew: what it held is forgotten, unless there is an error."""
        raise NotImplementedError("s09.3")  # TODO s09.3: from position 0

    def free(self, sequence: int) -> None:
        """Forget the sequence's tokens; it may have none."""
        raise NotImplementedError("s09.3")  # TODO s09.3: its memory is its own anyhow

    def read(self, layer: int, sequence: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values [length, num_kv_heads, head_dim] bf16 of a sequence, copied to the host."""
        raise NotImplementedError("s09.3")  # TODO s09.3: the row's first positions

    def tables(self, sequences: Sequence[int]) -> np.ndarray:
        """What `attend` needs to find these sequences: their rows of the cache, [B] int32."""
        raise NotImplementedError("s09.3")  # TODO s09.3: a sequence's number is its row

    def attend(
        self,
        layer: int,
        out: GPUArray,
        q: GPUArray,
        tables: GPUArray,
        context_lens: GPUArray,
        scale: float,
        stream: cuda.Stream | None = None,
    ) -> None:
        """Launch the attention of one query per sequence over its stored tokens; out, q [B, num_heads, head_dim].

        tables: of these sequences, context_lens [B] int32: their lengths; both on the GPU.
        """
        raise NotImplementedError("s09.3")  # TODO s09.3: decode_attention over this layer
