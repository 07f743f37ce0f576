"""The mistakes against which a wrong result is held: each is told where it is made, and none where none is."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from grader import oracle
from grader.judge.compare import Expected, compare, suspected
from grader.oracle.operations import Array

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(5)


def bf16(*shape: int, scale: float = 1.0) -> Array:
    return np.asarray(scale * RNG.standard_normal(shape)).astype(BF16)


def cached(contexts: list[int], heads: int = 4, kv_heads: int = 2, head_dim: int = 8, rows: int = 6) -> tuple[Any, ...]:
    """Arguments of decode_attention, whose caches are NaN wherever no context reaches."""
    slots = RNG.permutation(rows)[: len(contexts)].astype(np.int32)
    caches = [np.full((rows, max(contexts, default=0) + 1, kv_heads, head_dim), np.nan, BF16) for _ in range(2)]
    for cache in caches:
        for slot, context in zip(slots, contexts, strict=True):
            cache[slot, :context] = bf16(context, kv_heads, head_dim)
    return bf16(len(contexts), heads, head_dim, scale=4), *caches, slots, np.array(contexts, np.int32), 0.35


def paged(contexts: list[int], size: int = 4) -> tuple[Any, ...]:
    q, keys, values, slots, lengths, scale = cached(contexts, rows=len(contexts) + 1)
    blocks = -(-keys.shape[1] // size)
    pools = [np.full((len(keys) * blocks, size, *keys.shape[2:]), np.nan, BF16) for _ in range(2)]
    for pool, cache in zip(pools, (keys, values), strict=True):
        for row, content in enumerate(cache):
            pool.reshape(len(keys), -1, *cache.shape[2:])[row, : len(content)] = content
    return q, *pools, (slots[:, None] * blocks + np.arange(blocks)).astype(np.int32), lengths, scale


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (oracle.embedding, (bf16(9, 5), np.array([3, 3, 8], np.int32))),
    (oracle.embedding, (bf16(2, 5), np.array([1, 1, 0, 1], np.int32))),
    (oracle.residual_add, (bf16(3, 5), bf16(3, 5))),
    (oracle.silu_mul, (bf16(3, 5, scale=3), bf16(3, 5))),
    (oracle.rmsnorm, (bf16(3, 50), bf16(50), 1e-1)),
    (oracle.rmsnorm, (bf16(0, 8), bf16(8), 1e-5)),
    (oracle.softmax, (RNG.standard_normal((3, 7)).astype(np.float32),)),
    (oracle.softmax, (np.zeros((3, 0), np.float32),)),
    (oracle.matmul, (bf16(5, 35), bf16(6, 35))),
    (oracle.matmul, (bf16(5, 0), bf16(6, 0))),
    (oracle.matmul, (bf16(1, 1), bf16(1, 1), np.float32)),
    *[(oracle.attention, (bf16(n, 6, 8, scale=4), bf16(s, 2, 8), bf16(s, 2, 8), 0.35)) for n, s in
      ((4, 4), (3, 9), (5, 2), (2, 0), (0, 0), (1, 1), (0, 3))],
    *[(oracle.decode_attention, cached(contexts)) for contexts in ([5], [1, 0, 7], [0], [], [1])],
    *[(oracle.decode_attention, cached([2], heads, kv_heads)) for heads, kv_heads in ((1, 1), (3, 3), (6, 3))],
    *[(oracle.paged_attention, paged(contexts)) for contexts in ([5], [1, 0, 9], [0], [], [4, 4])],
]  # fmt: skip


def wrong_of(right: Expected, mistaken: Expected) -> Array:
    return np.asarray(mistaken.values).astype(right.dtype)


@pytest.mark.parametrize(("reference", "arguments"), CASES)
def test_each_mistake_that_changes_the_result_is_named(
    reference: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    right = reference(*arguments)
    for mistake, result in right.suspects():
        got = wrong_of(right, result)
        if compare(got, right).wrong.sum() < 4:
            continue
        told = suspected(got, right)
        assert told is not None
        assert mistake in told or told.count("or that") == 2


@pytest.mark.parametrize(("reference", "arguments"), CASES)
def test_no_mistake_is_named_for_other_wrong_values(reference: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    right = reference(*arguments)
    got = (np.asarray(right.values).astype(np.float64) * 1.06 + 0.01).astype(right.dtype)
    assert suspected(got, right) is None
