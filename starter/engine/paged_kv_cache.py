"""The paged KV cache: keys and values of all tokens so far, in blocks that a sequence takes as it grows.

Owns the memory; who owns which block is the block manager's business. Used as KVCache is.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given.config import LlamaConfig
from pycuda.gpuarray import GPUArray


class PagedKVCache:
    """Keys and values of `max_num_seqs` sequences, numbers 0 … max_num_seqs − 1, in a pool of `num_blocks` blocks.

    `num_slots` (which is max_num_seqs), `max_length` and `block_manager` are attributes; `key_caches` and
    `value_caches` have one pool per layer, [num_blocks, block_size, num_kv_heads, head_dim] bf16. Every method
    that takes a sequence raises ValueError for a number that is none of them.
    """

    def __init__(
        self, config: LlamaConfig, num_blocks: int, block_size: int, max_num_seqs: int, max_length: int
    ) -> None:
        """All blocks are free. ValueError unless there is a block, a sequence and a length that the model can reach.

        The pool may be smaller than max_num_seqs sequences of max_length tokens.
        """
        # TODO s16.1: a pool per layer; lengths and block tables as arrays
        raise NotImplementedError("s16.1")

    def length(self, sequence: int) -> int:
        """How many tokens of the sequence are stored."""
        # TODO s16.1: look it up
        raise NotImplementedError("s16.1")

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether `extend` would find room for all of it; {sequence: further tokens}."""
        # TODO s16.1: neither a sequence too long nor too few blocks
        raise NotImplementedError("s16.1")

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Reserve room for counts[sequence] further tokens of each sequence.

        Returns where they go, for write_kv: rows block · block_size + offset, int32, the tokens of one sequence after
        those of the other in the order of `counts`. Raises RequestTooLong for more than max_length tokens, OutOfBlocks
        when too few blocks are free, ValueError for an unknown sequence; then nothing has changed.
        """
        # TODO s16.1: refuse first, then let the block manager take the blocks
        raise NotImplementedError("s16.1")

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As `extend`, but each of these sequences begins anew: what it held is forgotten, unless there is an error."""
        # TODO s16.1: its own blocks count as free
        raise NotImplementedError("s16.1")

    def free(self, sequence: int) -> None:
        """Forget the sequence's tokens and give its blocks back; it may have none."""
        # TODO s16.1: the table too, since the next sequence of this number may be shorter
        raise NotImplementedError("s16.1")

    def read(self, layer: int, sequence: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values [length, num_kv_heads, head_dim] bf16 of a sequence, copied to the host."""
        # TODO s16.1: block after block
        raise NotImplementedError("s16.1")

    def tables(self, sequences: Sequence[int]) -> np.ndarray:
        """What `attend` needs to find these sequences: their block tables [B, M] int32.

        M is the blocks of max_length tokens, always the same; −1 behind the blocks of a sequence.
        """
        # TODO s16.1: a copy of their rows
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
        """Launch the attention of one query per sequence over its stored tokens; out, q [B, num_heads, head_dim].

        tables: of these sequences, context_lens [B] int32: their lengths; both on the GPU.
        """
        # TODO s16.1: paged_attention over this layer
        raise NotImplementedError("s16.1")
