"""Stage 15: attention over a cache whose sequences lie in blocks anywhere in a pool."""

from collections.abc import Sequence
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import BF16, InOut, Out, Sparse, Worker, check, expect, hinting, property_check
from grader.checking.draws import Array, bf16, to_bf16
from grader.checks.support.attention import FAR_SCORES, SPREAD, equal_scores, expect_decoded_in_model, sloping_keys
from grader.checks.support.caches import empty_cache
from grader.checks.support.launches import expect_rounded
from grader.checks.support.parallelism import expect_parallel
from grader.oracle.references import ReferenceModel

FAR_BLOCKS = 2**31 // (16 * 4 * 64)
"""Blocks of 16 rows of 4 heads of 64 whose elements no 32-bit number counts any more."""
SPARE_BLOCKS = 3
FAR_HINT = (
    "In a pool of 4 blocks the same is right, so it is the size of the pool: an int holds at most 2^31 - 1, and this "
    "pool has more elements. Compute (block * block_size + offset) * Hkv * D as long long, from the first product on."
)
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


@check("s15.1")
def contexts(worker: Worker, rng: Generator) -> None:
    """paged_attention is right for contexts of 0 to 700 tokens in blocks of 8, 16 and 32, in any order of blocks."""
    for block_size in (16, 8, 32):
        expect_paged(worker, draw_paged(rng, (5,), 12, 4, 24, block_size))
        expect_paged(worker, draw_paged(rng, (5, 60, 150), 4, 1, 16, block_size))  # small enough to be checked
        for lengths in ((0,), (), (1, 15, 16, 17, 33), (31, 0, 32, 7, 8, 9), (64, 65), (700, 1), (127, 128, 129)):
            expect_paged(worker, draw_paged(rng, lengths, 12, 4, 24, block_size))


@check("s15.2")
def written_rows(worker: Worker, rng: Generator) -> None:
    """What write_kv stores in the blocks of a pool, paged_attention finds, and both leave the rest of it alone."""
    for block_size, lengths in ((16, (1, 16, 33)), (8, (8, 0, 9)), (32, (70, 31)), (1, (3, 2))):
        tables, num_blocks = draw_tables(rng, lengths, block_size)
        slots = slots_of(tables, lengths, block_size)
        k, v = (bf16(rng, len(slots), 4, 24) for _ in range(2))
        empty = empty_cache(num_blocks, block_size, 4, 24)
        keys, values = worker.launch("write_kv", InOut(empty), InOut(empty), k, v, slots)
        for name, got, want in zip(
            ("key_cache", "value_cache"), (keys, values), oracle.write_kv(empty, empty, k, v, slots), strict=True
        ):
            expect(got, want, name)
        q = bf16(rng, len(lengths), 12, 24, scale=SPREAD)
        expect_paged(worker, (q, keys, values, tables, np.array(lengths, np.int32)))


@check("s15.3")
def shared_blocks(worker: Worker, rng: Generator) -> None:
    """Two tables may share blocks, also one that only one of them fills, and a table may name a block twice."""
    for block_size in (8, 16, 32):
        size = 3 * block_size
        q, keys, values, tables, lengths = draw_paged(rng, (size, size - 1, 2 * block_size), 6, 2, 24, block_size)
        tables[1, :2] = tables[0, :2]
        tables[2, 1] = tables[0, 0]
        expect_paged(worker, (q, keys, values, tables, lengths))
        tables[2, 0], tables[1, 2], lengths[1] = tables[0, 0], tables[0, 2], 2 * block_size + 1
        expect_paged(worker, (q, keys, values, tables, lengths))


@check("s15.4")
def late_maximum(worker: Worker, rng: Generator) -> None:
    """Scores that rise or fall over many blocks, slowly and far past 88, neither overflow nor vanish."""
    for slope in (0.05, -0.05, 2.0, -2.0, 100.0, -100.0):
        q, keys, values, tables, lengths = draw_paged(rng, (300, 133), 2, 2, 64, 16)
        slots = slots_of(tables, (300, 133), 16)
        rising = np.concatenate([sloping_keys(context, 2, 64, slope) for context in (300, 133)])
        keys.reshape(-1, 2, 64)[slots] = rising
        expect_paged(worker, (np.ones_like(q), keys, values, tables, lengths))
    for score in FAR_SCORES:  # all equal; what no context reaches would weigh 100
        q, keys, values, tables, lengths = draw_paged(rng, (33, 5), 4, 2, 24, 16)
        seen = ~np.isnan(values.astype(np.float32))
        q[:], keys[:], values[:] = score, 1, np.where(seen, 1, 100)
        want = equal_scores(oracle.paged_attention(q, keys, values, tables, lengths, 0.2))
        expect(worker.launch("paged_attention", Out(q.shape), q, keys, values, tables, lengths, 0.2), want)


@check("s15.5")
def heads(worker: Worker, rng: Generator) -> None:
    """paged_attention is right for head sizes of 8 to 128 and for 32 heads over 8, 6 over 2, 28 over 4, 5 over 5."""
    for head_count, kv_heads in ((32, 8), (6, 2), (28, 4), (5, 5), (9, 1)):
        expect_paged(worker, draw_paged(rng, (3, 37), head_count, kv_heads, 8, 16))
    for head_dim in (8, 24, 40, 64, 120, 128):
        expect_paged(worker, draw_paged(rng, (140, 9), 4, 2, head_dim, 16))
    q, *others = draw_paged(rng, (140, 9), 8, 2, 128, 16)
    expect_rounded(worker, "paged_attention", Out(q.shape), q, *others, 0.1)


@check("s15.6")
@property_check(
    lengths=st.lists(st.integers(0, 80), max_size=4),
    block_size=st.sampled_from([8, 16, 32]),
    group=st.integers(1, 5),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 24, 64]),
    shift=st.sampled_from([0.0, 3.0]),
)
def property_of_pools(
    worker: Worker,
    rng: Generator,
    lengths: list[int],
    block_size: int,
    group: int,
    kv_heads: int,
    head_dim: int,
    shift: float,
) -> None:
    """paged_attention is right for any sequences, blocks and heads, with the precision of float32 sums."""
    q, keys, values, *others = draw_paged(rng, lengths, group * kv_heads, kv_heads, head_dim, block_size)
    expect_paged(worker, (q, keys, to_bf16(values + np.float32(shift)), *others))


@check("s15.7")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """paged_attention shares its work among threads that never race, and more sequences get more of them."""
    context = int(rng.integers(134, 150))
    few, many = ((Out((n, 4, 24)), *draw_paged(rng, [context] * n, 4, 2, 24, 16), 0.2) for n in (1, 8))
    expect_parallel(emulator, worker, "paged_attention", few, many)


@check("s15.8")
def in_the_model(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your kernel serves each token in all of its layers."""

    def attend(q: Array, keys: Array, values: Array, lengths: Array, scale: float) -> Array:
        table = rng.permutation(len(keys)).astype(np.int32)
        shuffled = [np.empty_like(cache) for cache in (keys, values)]
        for target, cache in zip(shuffled, (keys, values), strict=True):
            target[table] = cache
        tables = np.tile(table, (len(q), 1))
        return worker.launch("paged_attention", Out(q.shape), q, *shuffled, tables, lengths, scale)

    expect_decoded_in_model(tiny, attend, 16)


@check("s15.9")
def far_blocks(emulator: Worker, rng: Generator) -> None:
    """write_kv and paged_attention reach blocks beyond 2^31 elements of a pool."""
    near = np.arange(4, dtype=np.int32).reshape(2, 2)
    contexts = np.array([20, 31], np.int32)
    k, v = (bf16(rng, 51, 4, 64) for _ in range(2))
    q = bf16(rng, 2, 8, 64, scale=SPREAD)
    zeros = np.zeros((4, 16, 4, 64), BF16)
    slots = slots_of(near, (20, 31), 16)
    right = oracle.write_kv(zeros, zeros, k, v, slots)
    keys, values = (np.asarray(expected.values) for expected in right)
    for cache, expected in zip(
        emulator.launch("write_kv", InOut(zeros), InOut(zeros), k, v, slots), right, strict=True
    ):
        expect(cache, expected, "a cache of 4 blocks")
    expect_paged(emulator, (q, keys, values, near, contexts))

    shape = (FAR_BLOCKS + 4, 16, 4, 64)  # the same in blocks far behind
    tables = FAR_BLOCKS + rng.permutation(4).astype(np.int32).reshape(2, 2)
    tables[1, 1] = 3  # where 32-bit addresses wrap to
    blocks = tables.flatten().tolist()
    blank = {block: np.zeros(shape[1:], BF16) for block in blocks}
    with hinting(FAR_HINT):
        empty = [InOut(Sparse(shape, BF16, blank)) for _ in range(2)]
        pools = emulator.launch("write_kv", *empty, k, v, slots_of(tables, (20, 31), 16))
        for name, pool, expected in zip(("key_cache", "value_cache"), pools, right, strict=True):
            expect(np.stack([pool[block] for block in blocks]), replace(expected, suspects=tuple), f"{name}[{blocks}]")
        written = [Sparse(shape, BF16, pool) for pool in pools]
        got = emulator.launch("paged_attention", Out(q.shape), q, *written, tables, contexts, 0.125)
        expect(got, oracle.paged_attention(q, keys, values, near, contexts, 0.125))
