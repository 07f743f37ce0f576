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
        # s09.3: memory of all layers, a length per sequence
        if num_slots < 1:
            raise ValueError(f"a cache has at least 1 sequence, not {num_slots}")
        if not 1 <= max_length <= config.max_position_embeddings:
            raise ValueError(f"max_length must be 1 to the model's {config.max_position_embeddings}, not {max_length}")
        self.num_slots = num_slots
        self.max_length = max_length
        shape = (num_slots, max_length, config.num_kv_heads, config.head_dim)
        self.key_caches = [gpuarray.empty(shape, BF16) for _ in range(config.num_layers)]
        self.value_caches = [gpuarray.empty(shape, BF16) for _ in range(config.num_layers)]
        self._lengths = np.zeros(num_slots, np.int64)

    def length(self, sequence: int) -> int:
        """How many tokens of the sequence are stored."""
        # s09.3: look it up
        self._refuse_unknown([sequence])
        return int(self._lengths[sequence])

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        """Whether `extend` would find room; {sequence: further tokens}."""
        # s09.3: no sequence may outgrow its row
        sequences, added = self._arrays(counts)
        return bool((self._lengths[sequences] + added <= self.max_length).all())

    def extend(self, counts: Mapping[int, int]) -> np.ndarray:
        """Reserve room for counts[sequence] further tokens of each sequence.

        Returns where they go, for write_kv: rows sequence · max_length + position, int32, the tokens of one sequence
        after those of the other in the order of `counts`. Raises RequestTooLong for more than max_length tokens,
        ValueError for an unknown sequence; then nothing has changed.
        """
        # s09.3: behind what is there
        sequences, added = self._arrays(counts)
        return self._reserve(sequences, self._lengths[sequences], added)

    def restart(self, counts: Mapping[int, int]) -> np.ndarray:
        """As `extend`, but each of these sequences begins anew: what it held is forgotten, unless there is an error."""
        # s09.3: from position 0
        sequences, added = self._arrays(counts)
        return self._reserve(sequences, np.zeros_like(added), added)

    def free(self, sequence: int) -> None:
        """Forget the sequence's tokens; it may have none."""
        # s09.3: its memory is its own anyhow
        self._refuse_unknown([sequence])
        self._lengths[sequence] = 0

    def read(self, layer: int, sequence: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values [length, num_kv_heads, head_dim] bf16 of a sequence, copied to the host."""
        # s09.3: the row's first positions
        length = self.length(sequence)
        keys, values = self.key_caches[layer][sequence].get(), self.value_caches[layer][sequence].get()
        return keys[:length], values[:length]

    def tables(self, sequences: Sequence[int]) -> np.ndarray:
        """What `attend` needs to find these sequences: their rows of the cache, [B] int32."""
        # s09.3: a sequence's number is its row
        self._refuse_unknown(sequences)
        return np.array(sequences, np.int32)

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
        # s09.3: decode_attention over this layer
        keys, values = self.key_caches[layer], self.value_caches[layer]
        ops.decode_attention(out, q, keys, values, tables, context_lens, scale, stream)

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

    def _reserve(self, sequences: np.ndarray, starts: np.ndarray, added: np.ndarray) -> np.ndarray:
        ends = starts + added
        if (ends > self.max_length).any():
            raise RequestTooLong(f"{ends.max()} tokens of a sequence are more than the {self.max_length} it may have")
        self._lengths[sequences] = ends
        rows = np.repeat(sequences * self.max_length, added) + positions(starts, added)
        return rows.astype(np.int32)


def positions(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1 … (counts[0] numbers), then starts[1], starts[1] + 1 …, and so on."""
    before = np.cumsum(counts) - counts  # numbers of the earlier sequences
    return np.repeat(starts - before, counts) + np.arange(counts.sum())
