"""Pools of blocks, and paged_attention over them."""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import Out, Worker, expect
from grader.checking.draws import Array, bf16
from grader.checks.attending import SPREAD
from grader.checks.caches import empty_cache

SPARE_BLOCKS = 3
FAR = 1 << 24
"""The number of no block: to read there is out of bounds."""


def draw_tables(rng: Generator, contexts: Sequence[int], block_size: int) -> tuple[Array, int]:
    """(block_tables [B, M], number of blocks in the pool): every block in one table at most, in random order.

    Behind a context's blocks stand −1, the blocks of others, and numbers that no block has.
    """
    counts = [-(-context // block_size) for context in contexts]
    num_blocks = sum(counts) + SPARE_BLOCKS
    order = rng.permutation(num_blocks).astype(np.int32)
    tables = rng.choice([-1, FAR, int(order[0])], (len(contexts), max(counts, default=0) + 2)).astype(np.int32)
    for table, count, end in zip(tables, counts, np.cumsum(counts), strict=True):
        table[:count] = order[end - count : end]
    return tables, num_blocks


def slots_of(tables: Array, contexts: Sequence[int], block_size: int) -> Array:
    """The rows in the pool of all positions, sequence after sequence."""
    rows = [
        table[np.arange(context) // block_size].astype(np.int64) * block_size + np.arange(context) % block_size
        for table, context in zip(tables, contexts, strict=True)
    ]
    return np.concatenate([*rows, []]).astype(np.int32)


def draw_paged(
    rng: Generator, contexts: Sequence[int], heads: int, kv_heads: int, head_dim: int, block_size: int
) -> list[Array]:
    """q, key_cache, value_cache, block_tables and context_lens; whatever no context reaches is NaN."""
    tables, num_blocks = draw_tables(rng, contexts, block_size)
    caches = [empty_cache(num_blocks, block_size, kv_heads, head_dim) for _ in range(2)]
    slots = slots_of(tables, contexts, block_size)
    for cache in caches:
        cache.reshape(-1, kv_heads, head_dim)[slots] = bf16(rng, len(slots), kv_heads, head_dim)
    q = bf16(rng, len(contexts), heads, head_dim, scale=SPREAD)
    return [q, *caches, tables, np.array(contexts, np.int32)]


def expect_paged(worker: Worker, arguments: Sequence[Array]) -> None:
    """`arguments` are q, key_cache, value_cache, block_tables and context_lens."""
    q, keys, values, tables, contexts = arguments
    scale = q.shape[2] ** -0.5
    want = oracle.paged_attention(q, keys, values, tables, contexts, scale)
    expect(worker.launch("paged_attention", Out(q.shape), q, keys, values, tables, contexts, scale), want)
