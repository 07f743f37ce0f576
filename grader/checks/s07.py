"""Stage 7: causal attention with grouped key/value heads."""

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader.checking.api import Out, Worker, check, property_check
from grader.checking.draws import to_bf16
from grader.checks.support.attention import (
    draw_attention,
    expect_attention,
    expect_far_scores,
    expect_rounded_attention,
)
from grader.checks.support.parallelism import expect_parallel
from grader.checks.support.plug_in import expect_in_model
from grader.oracle.references import ReferenceModel

OP = "attention"


@check("s07.1")
def prompt_lengths(worker: Worker, rng: Generator) -> None:
    """attention is right for prompts of 1 to 130 tokens, with the heads of tiny."""
    for length in (5, 0, 1, 2, 16, 17, 31, 32, 33):
        expect_attention(worker, OP, *draw_attention(rng, length, length, 12, 4, 24))
    for length in (127, 128, 130):
        expect_attention(worker, OP, *draw_attention(rng, length, length, 2, 1, 24))


@check("s07.2")
def head_map(worker: Worker, rng: Generator) -> None:
    """Query head h uses key and value head h // (Hq / Hkv): 32 heads over 8, 6 over 2, 28 over 4, 5 over 5."""
    for heads, kv_heads in ((32, 8), (6, 2), (28, 4), (5, 5), (3, 1)):
        q, k, v = draw_attention(rng, 4, 4, heads, kv_heads, 8)  # as many queries as keys: s07.3 tests the mask alone
        expect_attention(worker, OP, q, k, to_bf16(np.broadcast_to(np.arange(1, kv_heads + 1)[:, None], v.shape)))
        expect_attention(worker, OP, q, k, v)


@check("s07.3")
def more_keys_than_queries(worker: Worker, rng: Generator) -> None:
    """The last query sees the last key: query i of L sees keys 0 to S − L + i, and none gives zeros."""
    for queries, keys in ((3, 8), (1, 5), (4, 4), (2, 300), (7, 33), (5, 2), (3, 1), (2, 0)):
        expect_attention(worker, OP, *draw_attention(rng, queries, keys, 4, 2, 24))


@check("s07.4")
def masked_keys(worker: Worker, rng: Generator) -> None:
    """Masked keys do not count, however large their logits and values are."""
    for queries, keys in ((6, 6), (3, 9), (4, 40)):
        q, k, v = draw_attention(rng, queries, keys, 2, 1, 24)
        q[:] = np.abs(q)
        growing = np.arange(keys)[:, None, None] - (keys - queries)
        large = np.broadcast_to(growing > 0, k.shape)
        k[large] = to_bf16(np.broadcast_to(1e6 * growing, k.shape)[large])
        v[large] = to_bf16(1e6 * np.broadcast_to(growing, v.shape)[large])
        expect_attention(worker, OP, q, k, v)


@check("s07.5")
def large_scores(worker: Worker, rng: Generator) -> None:
    """Scores that rise or fall from key to key, and far past 88, neither overflow nor vanish."""
    for slope in (0.05, -0.05, 2.0, -2.0):
        q, k, v = draw_attention(rng, 150, 150, 2, 2, 64)
        q[:] = 1
        k[:] = to_bf16(np.broadcast_to(slope * np.arange(-75, 75)[:, None, None] / 8, k.shape))
        expect_attention(worker, OP, q, k, v)
    q, k, v = draw_attention(rng, 33, 33, 4, 2, 64)
    expect_attention(worker, OP, to_bf16(q * np.float32(100)), k, v)
    expect_far_scores(worker, OP)


@check("s07.6")
def precise_scores(worker: Worker, rng: Generator) -> None:
    """Scores and sums stay float32 until the output is rounded."""
    for keys, heads in ((64, 4), (257, 2), (600, 1)):
        q, k, v = draw_attention(rng, keys, keys, heads, 1, 128)
        expect_attention(worker, OP, q, k, to_bf16(v + np.float32(3)))
    expect_rounded_attention(worker, OP, rng)


@check("s07.7")
def head_sizes(worker: Worker, rng: Generator) -> None:
    """attention is right at head sizes of 8 to 128."""
    for head_dim in (8, 24, 40, 64, 120, 128):
        expect_attention(worker, OP, *draw_attention(rng, 9, 9, 4, 2, head_dim))
        expect_attention(worker, OP, *draw_attention(rng, 70, 70, 3, 1, head_dim))


@check("s07.8")
@property_check(
    queries=st.integers(0, 6),
    past=st.integers(0, 30),
    group=st.integers(1, 4),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 24, 32]),
)
def property_of_shapes(
    worker: Worker, rng: Generator, queries: int, past: int, group: int, kv_heads: int, head_dim: int
) -> None:
    """attention is right for any numbers of queries, keys and heads."""
    expect_attention(worker, OP, *draw_attention(rng, queries, queries + past, group * kv_heads, kv_heads, head_dim))


@check("s07.9")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """attention shares its work among threads that never race, and more queries get more of them."""
    keys = int(rng.integers(66, 80))
    few, many = ((Out((queries, 4, 24)), *draw_attention(rng, queries, keys, 4, 2, 24), 0.2) for queries in (2, 32))
    expect_parallel(emulator, worker, OP, few, many, planned=("k",))


@check("s07.10")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your attention runs in all of its layers."""
    expect_in_model(tiny, attention=lambda q, *others: worker.launch(OP, Out(q.shape), q, *others))
