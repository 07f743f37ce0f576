"""The contiguous KV cache: keys and values of all tokens so far, one row of `max_length` positions per slot.

Owns the memory and each slot's length, and does not compute: kernels/write_kv.cu writes keys and values into it.
"""

from collections.abc import Iterable, Mapping, Sequence

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
    """Keys and values of one sequence in each of `num_slots` slots, which are the numbers 0 … num_slots − 1.

    `num_slots` and `max_length` are attributes; `key_caches` and `value_caches` have one array per layer,
    [num_slots, max_length, num_kv_heads, head_dim] bf16. Every method that takes a slot raises ValueError for a number
    that is none of them.
    """

    def __init__(self, config: LlamaConfig, num_slots: int, max_length: int) -> None:
        """All slots are empty. ValueError unless there is a slot and a length that the model can reach."""
        # s09.3: memory of all layers, a length per slot
        refuse_size(config, num_slots, max_length)
        self.num_slots = num_slots
        self.max_length = max_length
        self.key_caches, self.value_caches = allocate_layers(config, num_slots, max_length)
        self._lengths = [0] * num_slots

    def length(self, slot: int) -> int:
        """How many tokens of the slot are stored."""
        # s09.3: look it up
        refuse_unknown([slot], self.num_slots)
        return self._lengths[slot]

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether `extend` would find room; {slot: further tokens}."""
        # s09.3: no slot may outgrow its row
        refuse_malformed(counts, self.num_slots)
        return all(self._lengths[slot] + count <= self.max_length for slot, count in counts.items())

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Reserve room for counts[slot] further tokens of each slot.

        Returns where they go, for write_kv: rows slot · max_length + position, int32, the tokens of one slot after
        those of the other in the order of `counts`. Raises RequestTooLong for more than max_length tokens, ValueError
        for an unknown slot; then nothing has changed.
        """
        # s09.3: after what is there
        refuse_malformed(counts, self.num_slots)
        return self._reserve(counts, {slot: self._lengths[slot] for slot in counts})

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As `extend`, but each of these slots begins again: what it held is forgotten, unless there is an error."""
        # s09.3: from position 0
        refuse_malformed(counts, self.num_slots)
        return self._reserve(counts, dict.fromkeys(counts, 0))

    def free(self, slot: int) -> None:
        """Forget the slot's tokens; it may have none."""
        # s09.3: its memory is its own anyhow
        refuse_unknown([slot], self.num_slots)
        self._lengths[slot] = 0

    def read(self, layer: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values [length, num_kv_heads, head_dim] bf16 of a slot, copied to the host."""
        # s09.3: the row's first positions
        length = self.length(slot)
        keys, values = self.key_caches[layer][slot].get(), self.value_caches[layer][slot].get()
        return keys[:length], values[:length]

    def tables(self, slots: Sequence[int]) -> np.ndarray:
        """What `attend` needs to find these slots: their rows of the cache, [B] int32."""
        # s09.3: a slot's number is its row
        refuse_unknown(slots, self.num_slots)
        return np.array(slots, np.int32)

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
        # s09.3: decode_attention over this layer
        keys, values = self.key_caches[layer], self.value_caches[layer]
        ops.decode_attention(out, q, keys, values, tables, context_lens, scale, stream)

    def _reserve(self, counts: Mapping[int, int], starts: Mapping[int, int]) -> np.ndarray:
        """The rows of the new tokens, which come after the `starts` tokens of each slot."""
        longest = max((starts[slot] + count for slot, count in counts.items()), default=0)
        if longest > self.max_length:
            raise RequestTooLong(f"{longest} tokens of a slot are more than the {self.max_length} it may have")
        rows = []
        for slot, count in counts.items():
            self._lengths[slot] = starts[slot] + count
            rows.append(slot * self.max_length + np.arange(starts[slot], self._lengths[slot], dtype=np.int32))
        return np.concatenate(rows) if rows else np.empty(0, np.int32)


def refuse_size(config: LlamaConfig, num_slots: int, max_length: int) -> None:
    """ValueError unless there is a slot and a length that the model can reach."""
    if num_slots < 1:
        raise ValueError(f"a cache has at least 1 slot, not {num_slots}")
    if not 1 <= max_length <= config.max_position_embeddings:
        raise ValueError(f"max_length must be 1 to the model's {config.max_position_embeddings}, not {max_length}")


def allocate_layers(config: LlamaConfig, *rows: int) -> tuple[list[GPUArray], list[GPUArray]]:
    """Keys and values of each layer, [*rows, num_kv_heads, head_dim] bf16."""
    shape = (*rows, config.num_kv_heads, config.head_dim)
    keys, values = ([gpuarray.empty(shape, BF16) for _ in range(config.num_layers)] for _ in range(2))
    return keys, values


def refuse_unknown(slots: Iterable[int], num_slots: int) -> None:
    for slot in slots:
        if not 0 <= slot < num_slots:
            raise ValueError(f"there is no slot {slot}: they are 0 to {num_slots - 1}")


def refuse_malformed(counts: Mapping[int, int], num_slots: int) -> None:
    """ValueError for an unknown slot of {slot: further tokens} or a negative number of tokens."""
    refuse_unknown(counts, num_slots)
    if min(counts.values(), default=0) < 0:
        raise ValueError(f"a slot cannot grow by {min(counts.values())} tokens")
