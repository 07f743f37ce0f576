"""The paged KV cache: keys and values of all tokens so far, in blocks that a sequence takes as it grows.

Owns the memory; who owns which block is the block manager's business. Used as KVCache is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given import ops
from given.config import LlamaConfig
from given.requests import OutOfBlocks, RequestTooLong
from pycuda import gpuarray
from pycuda.gpuarray import GPUArray

from .block_manager import BlockManager
from .kv_cache import positions

BF16 = np.dtype(ml_dtypes.bfloat16)


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
        # s16.1: a pool per layer; lengths and block tables as arrays
        if max_num_seqs < 1:
            raise ValueError(f"a cache has at least 1 sequence, not {max_num_seqs}")
        if not 1 <= max_length <= config.max_position_embeddings:
            raise ValueError(f"max_length must be 1 to the model's {config.max_position_embeddings}, not {max_length}")
        self.block_manager = BlockManager(num_blocks, block_size)
        self.block_size = block_size
        self.num_slots = max_num_seqs
        self.max_length = max_length
        shape = (num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.key_caches = [gpuarray.empty(shape, BF16) for _ in range(config.num_layers)]
        self.value_caches = [gpuarray.empty(shape, BF16) for _ in range(config.num_layers)]
        self._lengths = np.zeros(max_num_seqs, np.int64)
        self._tables = np.full((max_num_seqs, self._blocks(max_length)), -1, np.int32)

    def length(self, sequence: int) -> int:
        """How many tokens of the sequence are stored."""
        # s16.1: look it up
        self._refuse_unknown([sequence])
        return int(self._lengths[sequence])

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether `extend` would find room for all of it; {sequence: further tokens}."""
        # s16.1: neither a sequence too long nor too few blocks
        sequences, added = self._arrays(counts)
        starts = self._lengths[sequences]
        ends = starts + added
        missing = self._blocks(ends).sum() - self._blocks(starts).sum()
        return bool((ends <= self.max_length).all() and missing <= self.block_manager.num_free())

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Reserve room for counts[sequence] further tokens of each sequence.

        Returns where they go, for write_kv: rows block · block_size + offset, int32, the tokens of one sequence after
        those of the other in the order of `counts`. Raises RequestTooLong for more than max_length tokens, OutOfBlocks
        when too few blocks are free, ValueError for an unknown sequence; then nothing has changed.
        """
        # s16.1: refuse first, then let the block manager take the blocks
        sequences, added = self._arrays(counts)
        starts = self._lengths[sequences]
        self._refuse(starts, starts + added, self.block_manager.num_free())
        return self._reserve(sequences, starts, added)

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As `extend`, but each of these sequences begins anew: what it held is forgotten, unless there is an error."""
        # s16.1: its own blocks count as free
        sequences, added = self._arrays(counts)
        nothing = np.zeros_like(added)
        own = self._blocks(self._lengths[sequences]).sum()
        self._refuse(nothing, added, self.block_manager.num_free() + own)
        for sequence in counts:
            self.free(sequence)
        return self._reserve(sequences, nothing, added)

    def free(self, sequence: int) -> None:
        """Forget the sequence's tokens and give its blocks back; it may have none."""
        # s16.1: the table too, since the next sequence of this number may be shorter
        if self.length(sequence):
            self.block_manager.free(sequence)
            self._lengths[sequence] = 0
            self._tables[sequence] = -1

    def read(self, layer: int, sequence: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values [length, num_kv_heads, head_dim] bf16 of a sequence, copied to the host."""
        # s16.1: block after block
        length = self.length(sequence)
        blocks = self._tables[sequence, : self._blocks(length)].tolist()
        keys, values = (
            np.array([pool[block].get() for block in blocks], BF16).reshape(-1, *pool.shape[2:])[:length]
            for pool in (self.key_caches[layer], self.value_caches[layer])
        )
        return keys, values

    def tables(self, sequences: Sequence[int]) -> np.ndarray:
        """What `attend` needs to find these sequences: their block tables [B, M] int32.

        M is the blocks of max_length tokens, always the same; −1 behind the blocks of a sequence.
        """
        # s16.1: a copy of their rows
        self._refuse_unknown(sequences)
        return self._tables[np.array(sequences, np.int64)]

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
        # s16.1: paged_attention over this layer
        keys, values = self.key_caches[layer], self.value_caches[layer]
        ops.paged_attention(out, q, keys, values, tables, context_lens, scale, stream)

    def _refuse_unknown(self, sequences: Sequence[int]) -> None:
        for sequence in sequences:
            if not 0 <= sequence < self.num_slots:
                raise ValueError(f"there is no sequence {sequence}: they are 0 to {self.num_slots - 1}")

    def _arrays(self, counts: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Sequences and counts as arrays. Arrays, since a step may extend a hundred sequences."""
        sequences, added = list(counts), np.array(list(counts.values()), np.int64)
        self._refuse_unknown(sequences)
        if (added < 0).any():
            raise ValueError(f"a sequence cannot grow by {added.min()} tokens")
        return np.array(sequences, np.int64), added

    def _blocks(self, tokens: Any) -> Any:
        """How many blocks so many tokens fill, the last one perhaps in part; of a number or of each in an array."""
        return -(-tokens // self.block_size)

    def _refuse(self, starts: np.ndarray, ends: np.ndarray, num_free: int) -> None:
        if (ends > self.max_length).any():
            raise RequestTooLong(f"{ends.max()} tokens of a sequence are more than the {self.max_length} it may have")
        missing = self._blocks(ends).sum() - self._blocks(starts).sum()
        if missing > num_free:
            raise OutOfBlocks(f"{missing} blocks are needed and {num_free} are free")

    def _reserve(self, sequences: np.ndarray, starts: np.ndarray, added: np.ndarray) -> np.ndarray:
        """Take the blocks, which are there, and return the rows of the new tokens."""
        for sequence, start, count in zip(sequences.tolist(), starts.tolist(), added.tolist(), strict=True):
            if start:
                self.block_manager.append(sequence, count)
            elif count:
                self.block_manager.allocate(sequence, count)
            if self._blocks(start + count) > self._blocks(start):
                table = self.block_manager.block_table(sequence)
                self._tables[sequence, : len(table)] = table
        self._lengths[sequences] = starts + added
        places = positions(starts, added)
        blocks = self._tables[np.repeat(sequences, added), places // self.block_size].astype(np.int64)
        return (blocks * self.block_size + places % self.block_size).astype(np.int32)
