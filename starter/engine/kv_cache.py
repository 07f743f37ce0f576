"""The contiguous KV cache: keys and values of all tokens so far, one row of `max_length` positions per slot.

Owns the memory and each slot's length, and does not compute: kernels/write_kv.cu writes keys and values into it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given.config import LlamaConfig
from pycuda.gpuarray import GPUArray


class KVCache:
    """Keys and values of one sequence in each of `num_slots` slots, which are the numbers 0 … num_slots − 1.

    `num_slots` and `max_length` are attributes; `key_caches` and `value_caches` have one array per layer,
    [num_slots, max_length, num_kv_heads, head_dim] bf16. Every method that takes a slot raises ValueError for a number
    that is none of them.
    """

    def __init__(self, config: LlamaConfig, num_slots: int, max_length: int) -> None:
        """All slots are empty. ValueError unless there is a slot and a length that the model can reach."""
        # TODO s09.3: memory of all layers, a length per slot
        raise NotImplementedError("s09.3")

    def length(self, slot: int) -> int:
        """How many tokens of the slot are stored."""
        # TODO s09.3: look it up
        raise NotImplementedError("s09.3")

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether `extend` would find room; {slot: further tokens}."""
        # TODO s09.3: no slot may outgrow its row
        raise NotImplementedError("s09.3")

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Reserve room for counts[slot] further tokens of each slot.

        Returns where they go, for write_kv: rows slot · max_length + position, int32, the tokens of one slot after
        those of the other in the order of `counts`. Raises RequestTooLong for more than max_length tokens, ValueError
        for an unknown slot; then nothing has changed.
        """
        # TODO s09.3: after what is there
        raise NotImplementedError("s09.3")

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As `extend`, but each of these slots begins again: what it held is forgotten, unless there is an error."""
        # TODO s09.3: from position 0
        raise NotImplementedError("s09.3")

    def free(self, slot: int) -> None:
        """Forget the slot's tokens; it may have none."""
        # TODO s09.3: its memory is its own anyhow
        raise NotImplementedError("s09.3")

    def read(self, layer: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values [length, num_kv_heads, head_dim] bf16 of a slot, copied to the host."""
        # TODO s09.3: the row's first positions
        raise NotImplementedError("s09.3")

    def tables(self, slots: Sequence[int]) -> np.ndarray:
        """What `attend` needs to find these slots: their rows of the cache, [B] int32."""
        # TODO s09.3: a slot's number is its row
        raise NotImplementedError("s09.3")

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
        """Launch the attention of one query per slot over its stored tokens; out, q [B, num_heads, head_dim].

        tables: of these slots, context_lens [B] int32: their lengths; both on the GPU.
        """
        # TODO s09.3: decode_attention over this layer
        raise NotImplementedError("s09.3")
