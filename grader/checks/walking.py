"""Runs a submission's attention over a cache inside the stored model: one token after the other."""

from collections.abc import Callable
from typing import Any

import numpy as np

from grader.checking.api import BF16
from grader.checking.draws import Array
from grader.checks.caches import empty_cache
from grader.checks.plug_in import expect_in_model
from grader.oracle.references import ReferenceModel

LONGEST = 70
"""Tokens of the longest prompt that is walked through: each costs a launch in every layer."""


def expect_decoded_in_model(tiny: ReferenceModel, attend: Callable[..., Any], block_size: int) -> None:
    """Raise Failure unless the logits are right when each token attends to a cache of those before it.

    `attend(q, key_cache, value_cache, context_lens, scale)` gives out [B, heads, D]: the tokens of a prompt stand for
    B sequences, of which sequence b has the first context_lens[b] = b + 1 positions of the same cache.
    """

    def attention(q: Array, k: Array, v: Array, scale: float) -> Any:
        blocks = -(-len(k) // block_size)
        caches = [empty_cache(blocks, block_size, *k.shape[1:]) for _ in range(2)]
        for cache, rows in zip(caches, (k, v), strict=True):
            cache.reshape(-1, *k.shape[1:])[: len(k)] = rows.astype(BF16)
        return attend(q, *caches, np.arange(1, len(q) + 1, dtype=np.int32), scale)

    expect_in_model(tiny, LONGEST, attention=attention)
