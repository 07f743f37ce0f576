"""An alternative solution: the paged cache keeps no table and no length itself; it asks the block manager each time.

Every slot is known to the manager from the beginning on, without tokens and so without blocks.
"""

from collections.abc import Iterable, Mapping, Sequence

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

BF16 = np.dtype(ml_dtypes.bfloat16)


class PagedKVCache:
    """Keys and values of `max_num_seqs` slots in a pool of blocks."""

    def __init__(
        self, config: LlamaConfig, num_blocks: int, block_size: int, max_num_seqs: int, max_length: int
    ) -> None:
        """ValueError for a pool without blocks, no slots, or a length that the model cannot reach."""
        if max_num_seqs <= 0 or not 0 < max_length <= config.max_position_embeddings:
            raise ValueError(f"{max_num_seqs} slots of {max_length} tokens are no cache for this model")
        self.block_manager = BlockManager(num_blocks, block_size)
        self.num_slots, self.max_length, self.block_size = max_num_seqs, max_length, block_size
        for slot in range(max_num_seqs):
            self.block_manager.allocate(slot, 0)
        row = (config.num_kv_heads, config.head_dim)
        self._memory = gpuarray.empty((config.num_layers, 2, num_blocks, block_size, *row), BF16)
        self.key_caches = [self._memory[layer, 0] for layer in range(config.num_layers)]
        self.value_caches = [self._memory[layer, 1] for layer in range(config.num_layers)]

    def length(self, slot: int) -> int:
        """How many tokens it holds. ValueError for an unknown slot."""
        return self.block_manager.num_tokens(slot)

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether there is room for all of it together. ValueError for an unknown slot or a negative count."""
        try:
            self._refuse(counts, {slot: self.length(slot) for slot in counts})
        except (RequestTooLong, OutOfBlocks):
            return False
        return True

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Rows [sum of counts] int32 for further tokens. RequestTooLong, OutOfBlocks or ValueError change nothing."""
        starts = {slot: self.length(slot) for slot in counts}
        self._refuse(counts, starts)
        return self._rows(counts, starts)

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As extend, from position 0 on; the blocks that these slots had may serve again."""
        starts = dict.fromkeys(counts, 0)
        self._refuse(counts, starts)
        for slot in counts:
            self.free(slot)
        return self._rows(counts, starts)

    def free(self, slot: int) -> None:
        """Forget its tokens and give back its blocks. ValueError for an unknown slot."""
        self.block_manager.free(slot)
        self.block_manager.allocate(slot, 0)

    def read(self, layer: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Copies of its keys and values, [length, num_kv_heads, head_dim] bf16."""
        slots = np.array(self.block_manager.slot_mapping(slot), np.int64)
        row = self._memory.shape[-2:]
        keys, values = (self._memory[layer, part].get().reshape(-1, *row)[slots] for part in (0, 1))
        return keys, values

    def tables(self, slots: Sequence[int]) -> np.ndarray:
        """Block tables [B, blocks of max_length] int32, −1 behind the blocks that a slot has."""
        tables = np.full((len(slots), self._blocks(self.max_length)), -1, np.int32)
        for row, slot in zip(tables, slots, strict=True):
            table = self.block_manager.block_table(slot)
            row[: len(table)] = table
        return tables

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
        """One query per slot over what the cache holds of it."""
        keys, values = self.key_caches[layer], self.value_caches[layer]
        ops.paged_attention(out, q, keys, values, tables, context_lens, scale, stream)

    def _blocks(self, num_tokens: int) -> int:
        return (num_tokens + self.block_size - 1) // self.block_size

    def _refuse(self, counts: Mapping[int, int], starts: Mapping[int, int]) -> None:
        """Raise what extend raises where there is no room for these tokens behind so many, or the counts are wrong."""
        missing = 0  # blocks, beyond those that these slots have
        for slot, count in counts.items():
            end = starts[slot] + count
            if count < 0:
                raise ValueError(f"slot {slot} cannot become shorter: counts are 0 or more")
            if end > self.max_length:
                raise RequestTooLong(f"no slot may be longer than {self.max_length} tokens")
            missing += self._blocks(end) - self._blocks(self.length(slot))
        if missing > self.block_manager.num_free():
            raise OutOfBlocks(f"{missing} blocks are wanted, but only {self.block_manager.num_free()} are free")

    def _rows(self, counts: Mapping[int, int], starts: Mapping[int, int]) -> np.ndarray:
        rows: list[Iterable[int]] = []
        for slot, count in counts.items():
            self.block_manager.append(slot, count)
            rows.append(self.block_manager.slot_mapping(slot, starts[slot]))
        return np.array([row for some in rows for row in some], np.int32)
