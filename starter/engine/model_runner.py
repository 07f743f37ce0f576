"""Runs the model over a cache: `prefill` reads a prompt, `decode` adds a token, for one slot of the cache or a batch.

Keys and values are kept in the cache, so that a further token costs the work of one token. The runner owns the memory
of a pass and its recorded launches; the weights are the model's, and what is kept between passes is the cache's.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)

from .model import LlamaModel

if TYPE_CHECKING:
    from .kv_cache import KVCache
    from .paged_kv_cache import PagedKVCache

Ids = Sequence[int] | np.ndarray


class ModelRunner:
    """Prefills and decodes with one model; `model` is an attribute."""

    def __init__(self, model: LlamaModel) -> None:
        """Run `model`, in passes of any size."""
        # TODO s09.4: the model, and the memory of its passes
        raise NotImplementedError("s09.4")

    def prefill(self, ids: Ids, cache: "KVCache | PagedKVCache", slot: int = 0) -> np.ndarray:
        """Begin a slot of the cache again with a prompt: logits [vocab_size] float32 of its last token.

        What the slot held is forgotten. Raises ValueError for an empty prompt, an unknown id or slot, RequestTooLong
        and, with a paged cache, OutOfBlocks; then the cache is as it was.
        """
        # TODO s09.4: as forward, but keeping keys and values, and with one row of logits
        raise NotImplementedError("s09.4")

    def decode(self, token: int, cache: "KVCache | PagedKVCache", slot: int = 0) -> np.ndarray:
        """Append one token to a slot that `prefill` began: logits [vocab_size] float32 of this token.

        Raises ValueError for an unknown token, a slot that is unknown or empty, RequestTooLong and, with a paged
        cache, OutOfBlocks; then the cache is as it was.
        """
        # TODO s09.4: a batch of one
        raise NotImplementedError("s09.4")

    def prefill_batch(
        self, prompts: Sequence[Ids], cache: "KVCache | PagedKVCache", slots: Sequence[int] | None = None
    ) -> np.ndarray:
        """As `prefill` for several prompts in one pass, packed one after the other: logits [B, vocab_size] float32.

        slots: distinct ones, one per prompt; 0 … B − 1 when None. Errors are those of prefill, also for another
        number of slots than prompts; then no slot of the cache has changed.
        """
        # TODO s12.2: pack them, and let attention_varlen keep them apart
        raise NotImplementedError("s12.2")

    def decode_batch(self, ids: Ids, cache: "KVCache | PagedKVCache", slots: Sequence[int] | None = None) -> np.ndarray:
        """As `decode` with a token for each of several slots in one pass: logits [B, vocab_size] float32.

        slots: distinct ones, one per token; 0 … B − 1 when None. Errors are those of decode, also for another number
        of slots than tokens; then no slot of the cache has changed.
        """
        # TODO s12.2: one row per slot
        raise NotImplementedError("s12.2")
