"""The paged KV cache: keys and values of all tokens so far, in blocks that a slot takes as it grows.

Owns the memory alone: lengths and block tables are the block manager's. Used as KVCache is.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given.config import LlamaConfig
from pycuda.gpuarray import GPUArray


class PagedKVCache:
    """Keys and values of one sequence in each of `max_num_seqs` slots, numbers 0 … max_num_seqs − 1, in a pool.

    `num_slots` (which is max_num_seqs), `max_length` and `block_manager` are attributes; `key_caches` and
    `value_caches` have one pool per layer, [num_blocks, block_size, num_kv_heads, head_dim] bf16. Every method
    that takes a slot raises ValueError for a number that is none of them.
    """

    def __init__(
        self, config: LlamaConfig, num_blocks: int, block_size: int, max_num_seqs: int, max_length: int
    ) -> None:
        """All blocks are free. ValueError unless there is a block, a slot and a length that the model can reach.

        The pool may be smaller than max_num_seqs sequences of max_length tokens.
        """
        # TODO s16.1: a pool per layer; each slot is a sequence of the block manager
        raise NotImplementedError("s16.1")

    def length(self, slot: int) -> int:
        """How many tokens of the slot are stored."""
        # TODO s16.1: the block manager knows
        raise NotImplementedError("s16.1")

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether `extend` would find room for all of it; {slot: further tokens}."""
        # TODO s16.1: neither a slot too long nor too few blocks
        raise NotImplementedError("s16.1")

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Reserve room for counts[slot] further tokens of each slot.

        Returns where they go, for write_kv: rows block · block_size + offset, int32, the tokens of one slot after
        those of the other in the order of `counts`. Raises RequestTooLong for more than max_length tokens, OutOfBlocks
        when too few blocks are free, ValueError for an unknown slot; then nothing has changed.
        """
        # TODO s16.1: refuse first, then let the block manager take the blocks
        raise NotImplementedError("s16.1")

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As `extend`, but each of these slots begins again: what it held is forgotten, unless there is an error."""
        # TODO s16.1: its own blocks count as free
        raise NotImplementedError("s16.1")

    def free(self, slot: int) -> None:
        """Forget the slot's tokens and give its blocks back; it may have none."""
        # TODO s16.1: the sequence ends, and an empty one takes its number
        raise NotImplementedError("s16.1")

    def read(self, layer: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values [length, num_kv_heads, head_dim] bf16 of a slot, copied to the host."""
        # TODO s16.1: block after block
        raise NotImplementedError("s16.1")

    def tables(self, slots: Sequence[int]) -> np.ndarray:
        """What `attend` needs to find these slots: their block tables [B, M] int32.

        M is the blocks of max_length tokens, always the same; −1 after the blocks of a slot.
        """
        # TODO s16.1: of one width, since a recorded step has one shape
        raise NotImplementedError("s16.1")

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
        # TODO s16.1: paged_attention over this layer
        raise NotImplementedError("s16.1")
