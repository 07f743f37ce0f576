"""An alternative solution: one array for the keys and values of all layers, lengths as plain numbers in a list."""

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
    """Keys and values of `num_slots` slots of up to `max_length` tokens."""

    def __init__(self, config: LlamaConfig, num_slots: int, max_length: int) -> None:
        """ValueError unless there is a slot and a length that the model can reach."""
        if num_slots <= 0 or not 0 < max_length <= config.max_position_embeddings:
            raise ValueError(
                f"{num_slots} slots of {max_length} tokens are no cache for a model that reads at most "
                f"{config.max_position_embeddings}"
            )
        self.num_slots, self.max_length = num_slots, max_length
        row = (config.num_kv_heads, config.head_dim)
        self._memory = gpuarray.empty((config.num_layers, 2, num_slots, max_length, *row), BF16)
        self.key_caches = [self._memory[layer, 0] for layer in range(config.num_layers)]
        self.value_caches = [self._memory[layer, 1] for layer in range(config.num_layers)]
        self._lengths = [0] * num_slots

    def length(self, slot: int) -> int:
        """How many tokens it holds. ValueError for an unknown slot."""
        self._check([slot])
        return self._lengths[slot]

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether there is room for all of it. ValueError for an unknown slot or a negative count."""
        self._check(counts, counts.values())
        return all(self._lengths[slot] + count <= self.max_length for slot, count in counts.items())

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Rows [sum of counts] int32 for further tokens. ValueError as above, RequestTooLong; nothing changes then."""
        if not self.can_extend(counts):
            raise RequestTooLong(f"no slot may be longer than {self.max_length} tokens")
        return self._rows({slot: (self._lengths[slot], count) for slot, count in counts.items()})

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As extend, from position 0 on."""
        self._check(counts, counts.values())
        if max(counts.values(), default=0) > self.max_length:
            raise RequestTooLong(f"no slot may be longer than {self.max_length} tokens")
        return self._rows({slot: (0, count) for slot, count in counts.items()})

    def free(self, slot: int) -> None:
        """Forget its tokens. ValueError for an unknown slot."""
        self._check([slot])
        self._lengths[slot] = 0

    def read(self, layer: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Copies of its keys and values, [length, num_kv_heads, head_dim] bf16."""
        length = self.length(slot)
        if length == 0:
            return tuple(np.empty((0, *self._memory.shape[-2:]), BF16) for _ in range(2))
        keys, values = (self._memory[layer, part, slot, :length].get() for part in (0, 1))
        return keys, values

    def tables(self, slots: Sequence[int]) -> np.ndarray:
        """The rows of these slots, [B] int32: their own numbers. ValueError for an unknown slot."""
        self._check(slots)
        return np.fromiter(slots, np.int32, len(slots))

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
        """One query per slot over what the cache holds of it, in one pass over the keys."""
        keys, values = self.key_caches[layer], self.value_caches[layer]
        ops.flash_decode_attention(out, q, keys, values, tables, context_lens, scale, stream)

    def _check(self, slots: Iterable[int], counts: Iterable[int] = ()) -> None:
        if unknown := [slot for slot in slots if slot not in range(self.num_slots)]:
            raise ValueError(f"the slots {unknown} are unknown; there are {self.num_slots}, counted from 0")
        if any(count < 0 for count in counts):
            raise ValueError("a slot cannot become shorter: counts are 0 or more")

    def _rows(self, spans: Mapping[int, tuple[int, int]]) -> np.ndarray:
        """The rows for {slot: (first position, count)}, which are then the slots' last ones."""
        rows = [np.arange(0, dtype=np.int32)]
        for slot, (start, count) in spans.items():
            first = slot * self.max_length + start
            rows.append(np.arange(first, first + count, dtype=np.int32))
            self._lengths[slot] = start + count
        return np.concatenate(rows)
