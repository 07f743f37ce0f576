"""An alternative solution: a runner without state, which allocates what each pass needs."""

from collections.abc import Sequence

import numpy as np
from given import ops
from pycuda import gpuarray
from pycuda.gpuarray import GPUArray

from .kv_cache import KVCache
from .model import BF16, FLOAT32, LlamaModel, checked_ids, integers, normalised, project
from .paged_kv_cache import PagedKVCache

Cache = KVCache | PagedKVCache


class ModelRunner:
    """Passes of a model over a cache."""

    def __init__(self, model: LlamaModel) -> None:
        self.model = model
        self.stream = None  # all work is on the default stream

    def prefill(self, ids: Sequence[int] | np.ndarray, cache: Cache, slot: int = 0) -> np.ndarray:
        """Begin a slot with a prompt: logits [vocab_size] float32 of its last token.

        ValueError for an empty prompt, an unknown id or slot; RequestTooLong, OutOfBlocks. Nothing changes then.
        """
        return self.prefill_batch([ids], cache, [slot])[0]

    def decode(self, token: int, cache: Cache, slot: int = 0) -> np.ndarray:
        """Append a token to a slot that has one: its logits [vocab_size] float32. Errors as prefill's."""
        return self.decode_batch([token], cache, [slot])[0]

    def prefill_batch(
        self, prompts: Sequence[Sequence[int] | np.ndarray], cache: Cache, slots: Sequence[int] | None = None
    ) -> np.ndarray:
        """Begin slots (0 … B − 1 by default) with a prompt each: logits [B, vocab_size] float32."""
        return self.launch_prefill(prompts, cache, range(len(prompts)) if slots is None else slots).get()

    def decode_batch(
        self, ids: Sequence[int] | np.ndarray, cache: Cache, slots: Sequence[int] | None = None
    ) -> np.ndarray:
        """Append a token to each of some slots (0 … B − 1 by default): logits [B, vocab_size] float32."""
        return self.launch_decode(ids, cache, range(len(ids)) if slots is None else slots).get()

    def launch_prefill(
        self, prompts: Sequence[Sequence[int] | np.ndarray], cache: Cache, slots: Sequence[int]
    ) -> GPUArray:
        """prefill_batch whose logits stay on the GPU."""
        tokens = [checked_ids(ids, self.model.config) for ids in prompts]
        _refuse_unpaired(slots, len(tokens))
        counts = [ids.size for ids in tokens]
        rows = integers(cache.restart(dict(zip(slots, counts, strict=True))))
        starts = integers(np.cumsum([0, *counts]))

        def attention(layer: int, found: GPUArray, q: GPUArray, k: GPUArray, v: GPUArray) -> None:
            ops.write_kv(cache.key_caches[layer], cache.value_caches[layer], k, v, rows)
            if len(counts) == 1:
                ops.flash_attention(found, q, k, v, self.model.scale)
            else:
                ops.attention_varlen(found, q, k, v, starts, starts, self.model.scale)

        positions = np.concatenate([np.arange(count) for count in counts])
        hidden = self.model.run(np.concatenate(tokens), positions, attention)
        normed = normalised(hidden, self.model.norm, self.model.config)
        last = gpuarray.empty((len(counts), self.model.config.hidden_size), BF16)
        ops.embedding(last, normed, integers(np.cumsum(counts) - 1))  # the rows of the last tokens
        return project(last, self.model.head, FLOAT32)

    def launch_decode(self, ids: Sequence[int] | np.ndarray, cache: Cache, slots: Sequence[int]) -> GPUArray:
        """decode_batch whose logits stay on the GPU."""
        tokens = checked_ids(ids, self.model.config)
        _refuse_unpaired(slots, tokens.size)
        past = np.array([cache.length(slot) for slot in slots])
        if not past.all():
            raise ValueError("a slot is empty: it must begin with a prompt")
        rows = integers(cache.extend({slot: 1 for slot in slots}))
        tables, lengths = integers(cache.tables(list(slots))), integers(past + 1)

        def attention(layer: int, found: GPUArray, q: GPUArray, k: GPUArray, v: GPUArray) -> None:
            ops.write_kv(cache.key_caches[layer], cache.value_caches[layer], k, v, rows)
            cache.attend(layer, found, q, tables, lengths, self.model.scale)

        hidden = self.model.run(tokens, past, attention)
        return project(normalised(hidden, self.model.norm, self.model.config), self.model.head, FLOAT32)

    def reserve(self, max_num_tokens: int, max_num_seqs: int) -> None:
        """Nothing to do: an engine announces its largest pass, but each pass allocates what it needs."""


def _refuse_unpaired(slots: Sequence[int], count: int) -> None:
    if count == 0:
        raise ValueError("the batch is empty")
    if len(slots) != count or len(set(slots)) != count:
        raise ValueError(f"wanted {count} different slots, one for each prompt or token, not {list(slots)}")
