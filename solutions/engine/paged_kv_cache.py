"""The paged KV cache: keys and values of all tokens so far, in blocks that a slot takes as it grows.

Owns the memory alone: lengths and block tables are the block manager's. Used as KVCache is.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given import ops
from given.config import LlamaConfig
from given.requests import OutOfBlocks, RequestTooLong
from pycuda.gpuarray import GPUArray

from .block_manager import BlockManager, blocks_for
from .kv_cache import BF16, allocate_layers, refuse_size


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
        # s16.1: a pool per layer; each slot is a sequence of the block manager
        refuse_size(config, max_num_seqs, max_length)
        self.block_manager = BlockManager(num_blocks, block_size)
        self.block_size = block_size
        self.num_slots = max_num_seqs
        self.max_length = max_length
        self.key_caches, self.value_caches = allocate_layers(config, num_blocks, block_size)
        for slot in range(max_num_seqs):
            self.block_manager.allocate(slot, 0)

    def length(self, slot: int) -> int:
        """How many tokens of the slot are stored."""
        # s16.1: the block manager knows
        return self.block_manager.num_tokens(slot)

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether `extend` would find room for all of it; {slot: further tokens}."""
        # s16.1: neither a slot too long nor too few blocks
        longest, missing = self._demand(counts, self._lengths(counts))
        return longest <= self.max_length and missing <= self.block_manager.num_free()

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Reserve room for counts[slot] further tokens of each slot.

        Returns where they go, for write_kv: rows block · block_size + offset, int32, the tokens of one slot after
        those of the other in the order of `counts`. Raises RequestTooLong for more than max_length tokens, OutOfBlocks
        when too few blocks are free, ValueError for an unknown slot; then nothing has changed.
        """
        # s16.1: refuse first, then let the block manager take the blocks
        starts = self._lengths(counts)
        self._refuse(*self._demand(counts, starts), self.block_manager.num_free())
        return self._reserve(counts, starts)

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As `extend`, but each of these slots begins again: what it held is forgotten, unless there is an error."""
        # s16.1: its own blocks count as free
        own = self._num_blocks(self._lengths(counts).values())
        starts = dict.fromkeys(counts, 0)
        self._refuse(*self._demand(counts, starts), self.block_manager.num_free() + own)
        for slot in counts:
            self.free(slot)
        return self._reserve(counts, starts)

    def free(self, slot: int) -> None:
        """Forget the slot's tokens and give its blocks back; it may have none."""
        # s16.1: the sequence ends, and an empty one takes its number
        self.block_manager.free(slot)
        self.block_manager.allocate(slot, 0)

    def read(self, layer: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values [length, num_kv_heads, head_dim] bf16 of a slot, copied to the host."""
        # s16.1: block after block
        length, blocks = self.length(slot), self.block_manager.block_table(slot)
        keys, values = (
            np.array([pool[block].get() for block in blocks], BF16).reshape(-1, *pool.shape[2:])[:length]
            for pool in (self.key_caches[layer], self.value_caches[layer])
        )
        return keys, values

    def tables(self, slots: Sequence[int]) -> np.ndarray:
        """What `attend` needs to find these slots: their block tables [B, M] int32.

        M is the blocks of max_length tokens, always the same; −1 after the blocks of a slot.
        """
        # s16.1: of one width, since a recorded step has one shape
        return self.block_manager.tables(slots, blocks_for(self.max_length, self.block_size))

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
        # s16.1: paged_attention over this layer
        keys, values = self.key_caches[layer], self.value_caches[layer]
        ops.paged_attention(out, q, keys, values, tables, context_lens, scale, stream)

    def _lengths(self, counts: Mapping[int, int]) -> dict[int, int]:
        """The lengths of these slots; ValueError for an unknown one."""
        return {slot: self.block_manager.num_tokens(slot) for slot in counts}

    def _demand(self, counts: Mapping[int, int], starts: Mapping[int, int]) -> tuple[int, int]:
        """(length of the longest slot, blocks that all lack) with counts[slot] tokens after starts[slot] in each."""
        if min(counts.values(), default=0) < 0:
            raise ValueError(f"a slot cannot grow by {min(counts.values())} tokens")
        ends = [starts[slot] + count for slot, count in counts.items()]
        return max(ends, default=0), self._num_blocks(ends) - self._num_blocks(starts.values())

    def _num_blocks(self, lengths: Iterable[int]) -> int:
        """How many blocks slots of these lengths hold together."""
        size = self.block_size
        return sum([-(-length // size) for length in lengths])  # blocks_for, without a call for each

    def _refuse(self, longest: int, missing: int, num_free: int) -> None:
        if longest > self.max_length:
            raise RequestTooLong(f"{longest} tokens of a slot are more than the {self.max_length} it may have")
        if missing > num_free:
            raise OutOfBlocks(f"{missing} blocks are needed and {num_free} are free")

    def _reserve(self, counts: Mapping[int, int], starts: Mapping[int, int]) -> np.ndarray:
        """Take the blocks, which are there, and return the rows of the new tokens."""
        slot_mapping: list[int] = []
        for slot, count in counts.items():
            self.block_manager.append(slot, count)
            slot_mapping += self.block_manager.slot_mapping(slot, starts[slot])
        return np.array(slot_mapping, np.int32)
