"""Sequences packed one behind the other, and attention_varlen over them."""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import Out, Worker, expect
from grader.checking.draws import Array
from grader.checks.attending import draw_attention


def cumulated(lengths: Sequence[int]) -> Array:
    """[len(lengths) + 1] int32: where each sequence begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def draw_packed(
    rng: Generator, lengths: Sequence[tuple[int, int]], heads: int, kv_heads: int, head_dim: int
) -> list[Array]:
    """q, k, v, cu_seqlens_q and cu_seqlens_k of sequences with so many (queries, keys)."""
    starts = [cumulated(counts) for counts in ([queries for queries, _ in lengths], [keys for _, keys in lengths])]
    q, k, v = draw_attention(rng, int(starts[0][-1]), int(starts[1][-1]), heads, kv_heads, head_dim)
    return [q, k, v, *starts]


def expect_packed(worker: Worker, arguments: Sequence[Array]) -> Array:
    """Judge attention_varlen of q, k, v, cu_seqlens_q and cu_seqlens_k; returns its output."""
    q, k, v, starts_q, starts_k = arguments
    scale = q.shape[2] ** -0.5
    out: Array = worker.launch("attention_varlen", Out(q.shape), q, k, v, starts_q, starts_k, scale)
    expect(out, oracle.attention_varlen(q, k, v, starts_q, starts_k, scale))
    return out
