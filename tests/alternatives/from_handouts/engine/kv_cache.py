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
    """Keys and values of `num_slots` sequences of up to `max_length` tokens."""

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

    def length(self, sequence: int) -> int:
        """How many tokens it holds. ValueError for an unknown sequence."""
        self._check([sequence])
        return self._lengths[sequence]

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether there is room for all of it. ValueError for an unknown sequence or a negative count."""
        self._check(counts, counts.values())
        return all(self._lengths[sequence] + count <= self.max_length for sequence, count in counts.items())

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Rows [sum of counts] int32 for further tokens. ValueError as above, RequestTooLong; nothing changes then."""
        if not self.can_extend(counts):
            raise RequestTooLong(f"no sequence may be longer than {self.max_length} tokens")
        return self._rows({sequence: (self._lengths[sequence], count) for sequence, count in counts.items()})

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As extend, from position 0 on."""
        self._check(counts, counts.values())
        if max(counts.values(), default=0) > self.max_length:
            raise RequestTooLong(f"no sequence may be longer than {self.max_length} tokens")
        return self._rows({sequence: (0, count) for sequence, count in counts.items()})

    def free(self, sequence: int) -> None:
        """Forget its tokens. ValueError for an unknown sequence."""
        self._check([sequence])
        self._lengths[sequence] = 0

    def read(self, layer: int, sequence: int) -> tuple[np.ndarray, np.ndarray]:
        """Copies of its keys and values, [length, num_kv_heads, head_dim] bf16."""
        length = self.length(sequence)
        if length == 0:
            return tuple(np.empty((0, *self._memory.shape[-2:]), BF16) for _ in range(2))
        keys, values = (self._memory[layer, part, sequence, :length].get() for part in (0, 1))
        return keys, values

    def tables(self, sequences: Sequence[int]) -> np.ndarray:
        """The slots of these sequences, [B] int32: their own numbers. ValueError for an unknown sequence."""
        self._check(sequences)
        return np.fromiter(sequences, np.int32, len(sequences))

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
        """One query per sequence over what the cache holds of it, in one pass over the keys."""
        keys, values = self.key_caches[layer], self.value_caches[layer]
        ops.flash_decode_attention(out, q, keys, values, tables, context_lens, scale, stream)

    def _check(self, sequences: Iterable[int], counts: Iterable[int] = ()) -> None:
        if unknown := [sequence for sequence in sequences if sequence not in range(self.num_slots)]:
            raise ValueError(f"the sequences {unknown} are unknown; there are {self.num_slots}, counted from 0")
        if any(count < 0 for count in counts):
            raise ValueError("a sequence cannot become shorter: counts are 0 or more")

    def _rows(self, spans: Mapping[int, tuple[int, int]]) -> np.ndarray:
        """The rows for {sequence: (first position, count)}, which are then the sequences' last ones."""
        rows = [np.arange(0, dtype=np.int32)]
        for sequence, (start, count) in spans.items():
            first = sequence * self.max_length + start
            rows.append(np.arange(first, first + count, dtype=np.int32))
            self._lengths[sequence] = start + count
        return np.concatenate(rows)
