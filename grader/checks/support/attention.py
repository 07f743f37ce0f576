"""Calls of the kernels that compute attention, alone or inside the stored model, and their judgement."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import BF16, Expected, Out, Worker, expect
from grader.checking.draws import Array, bf16, to_bf16
from grader.checks.support.caches import draw_rows, empty_cache
from grader.checks.support.launches import expect_rounded
from grader.checks.support.plug_in import expect_in_model
from grader.judge.compare import attention_allowed
from grader.oracle.references import ReferenceModel

SPREAD = 4.0
"""Standard deviation of the scores: rounding them to bf16 would show."""
FAR_SCORES = (-2e4, -1e10, 2e4, 1e10)
"""Below the −1e4 and −1e9 that some take for −infinity, and above."""
LONGEST = 70
"""Tokens of the longest prompt that is walked through: each costs a launch in every layer."""


def draw_attention(
    rng: Generator, queries: int, keys: int, heads: int, kv_heads: int, head_dim: int
) -> tuple[Array, Array, Array]:
    """q [queries, heads, head_dim], k and v [keys, kv_heads, head_dim]."""
    q = bf16(rng, queries, heads, head_dim, scale=SPREAD)
    return q, bf16(rng, keys, kv_heads, head_dim), bf16(rng, keys, kv_heads, head_dim)


def sloping_keys(keys: int, kv_heads: int, head_dim: int, slope: float) -> Array:
    """Keys whose scores with a query of ones rise by slope · sqrt(head_dim) / 8 from key to key, through 0."""
    rising = slope * (np.arange(keys) - keys // 2) / 8
    return to_bf16(np.broadcast_to(rising[:, None, None], (keys, kv_heads, head_dim)))


def expect_attention(worker: Worker, op: str, q: Array, k: Array, v: Array) -> None:
    scale = q.shape[2] ** -0.5
    expect(worker.launch(op, Out(q.shape), q, k, v, scale), oracle.attention(q, k, v, scale))


def expect_rounded_attention(worker: Worker, op: str, rng: Generator) -> None:
    """Raise Failure unless attention of several queries is rounded to the nearest."""
    q, k, v = draw_attention(rng, 7, 60, 4, 2, 64)
    expect_rounded(worker, op, Out(q.shape), q, k, v, 0.125)


def expect_far_scores(worker: Worker, op: str) -> None:
    """Raise Failure unless scores that are all equal, and far from 0, share out 1; 100 stands where none is seen."""
    for score in FAR_SCORES:
        q = to_bf16(np.full((3, 4, 24), score))
        k, v = (to_bf16(np.ones((40, 2, 24))) for _ in range(2))
        v[-1] = 100
        arguments = Out(q.shape), q, k, v, 0.2
        expect(worker.launch(op, *arguments), equal_scores(oracle.attention(*arguments[1:])))


def expect_far_decode_scores(worker: Worker, op: str, rng: Generator) -> None:
    """As expect_far_scores, of contexts in a cache."""
    for score in FAR_SCORES:
        q, keys, values, slots, contexts = draw_decode(rng, (5, 40), 4, 2, 24)
        q[:], keys[:], values[:] = score, 1, 100
        for slot, context in zip(slots, contexts, strict=True):
            values[slot, :context] = 1
        arguments = Out(q.shape), q, keys, values, slots, contexts, 0.2
        expect(worker.launch(op, *arguments), equal_scores(oracle.decode_attention(*arguments[1:])))


def equal_scores(expected: Expected) -> Expected:
    """Attention whose scores are all equal, so that their size makes no difference; `expected` allows for it."""
    values = np.abs(expected.values)
    return Expected(expected.values, attention_allowed(values, values, 0), BF16)


def draw_decode(rng: Generator, contexts: Sequence[int], heads: int, kv_heads: int, head_dim: int) -> list[Array]:
    """q, key_cache, value_cache, slots and context_lens of sequences with these contexts in a contiguous cache."""
    q = bf16(rng, len(contexts), heads, head_dim, scale=SPREAD)
    rows = draw_rows(rng, len(contexts) + 2, max(contexts, default=0) + 3, contexts, kv_heads, head_dim)
    return [q, *rows, np.array(contexts, np.int32)]


def expect_decode(worker: Worker, op: str, arguments: Iterable[Array]) -> None:
    """`arguments` are q, key_cache, value_cache, slots and context_lens."""
    q, keys, values, slots, contexts = arguments
    scale = q.shape[2] ** -0.5
    want = oracle.decode_attention(q, keys, values, slots, contexts, scale)
    expect(worker.launch(op, Out(q.shape), q, keys, values, slots, contexts, scale), want)


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
