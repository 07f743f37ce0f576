"""The oracle's operations on caches and on packed sequences, against plain loops and against `oracle.attention`."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from grader import oracle
from grader.failure import Failure
from grader.judge.compare import Expected, expect

Array = NDArray[Any]

BF16 = np.dtype(ml_dtypes.bfloat16)
SCALE = 0.3


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def draw(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return (scale * rng.standard_normal(shape)).astype(BF16)


def int32(values: Any) -> Array:
    return np.asarray(values, np.int32)


def draw_caches(rng: np.random.Generator, *shape: int) -> tuple[Array, Array]:
    return draw(rng, *shape), draw(rng, *shape)


def expect_equal(got: Expected, want: Expected) -> None:
    """To the last bits: sums may be taken in another order."""
    assert np.allclose(got.values, want.values, rtol=1e-12, atol=1e-14)
    assert np.allclose(got.allowed, want.allowed, rtol=1e-12, atol=0)
    assert got.dtype == want.dtype == BF16


def test_write_kv(rng: np.random.Generator) -> None:
    """Every row but those named stays, NaN too; −1 is no row."""
    caches = draw_caches(rng, 3, 4, 2, 8)
    for cache in caches:
        cache[1, 2] = np.nan
    before = [cache.copy() for cache in caches]
    slots = int32([5, -1, 11, 0])
    rows = draw_caches(rng, 4, 2, 8)
    for cache, row, kept, expected in zip(caches, rows, before, oracle.write_kv(*caches, *rows, slots), strict=True):
        assert np.array_equal(cache.view(np.uint16), kept.view(np.uint16))
        want = kept.copy()
        want[1, 1], want[2, 3], want[0, 0] = row[0], row[2], row[3]
        expect(want, expected)
        with pytest.raises(Failure):
            expect(kept, expected)
        want[2, 3] = row[1]
        with pytest.raises(Failure):
            expect(want, expected)


def test_decode_attention(rng: np.random.Generator) -> None:
    """Each row is `attention` of one query to the first rows of its slot; what lies behind is not looked at."""
    contexts, slots = int32([1, 0, 7, 4]), int32([2, 0, 1, 2])
    q = draw(rng, 4, 6, 8, scale=4)
    caches = draw_caches(rng, 3, 7, 2, 8)
    for cache in caches:
        cache[0] = np.nan
        cache[2, 4:] = np.nan
    expected = oracle.decode_attention(q, *caches, slots, contexts, SCALE)
    for b, (slot, length) in enumerate(zip(slots, contexts, strict=True)):
        k, v = (cache[slot, :length] for cache in caches)
        expect_equal(_row(expected, b), oracle.attention(q[b : b + 1], k, v, SCALE))
    assert not expected.values[1].any()


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_paged_attention(rng: np.random.Generator, block_size: int) -> None:
    """Each row is `attention` to the keys that its table names, position by position; tables may share a block."""
    contexts = int32([1, 0, 17, 16, 9])
    width = 17 // block_size + 3
    tables = rng.integers(-(2**31), 2**31 - 1, size=(5, width), dtype=np.int32)  # what is behind a context is anything
    free = iter(rng.permutation(5 * width))
    for table, length in zip(tables, contexts, strict=True):
        for block in range(-(-length // block_size)):
            table[block] = next(free)
    tables[3, 0] = tables[2, 0]
    q = draw(rng, 5, 6, 8, scale=4)
    key_cache, value_cache = (np.full((5 * width, block_size, 2, 8), np.nan, BF16) for _ in range(2))
    rows = [
        [(table[j // block_size], j % block_size) for j in range(n)] for table, n in zip(tables, contexts, strict=True)
    ]
    for block, position in {row for each in rows for row in each}:
        key_cache[block, position], value_cache[block, position] = draw_caches(rng, 2, 8)
    expected = oracle.paged_attention(q, key_cache, value_cache, tables, contexts, SCALE)
    for b, each in enumerate(rows):
        k, v = (np.array([cache[row] for row in each], BF16).reshape(-1, 2, 8) for cache in (key_cache, value_cache))
        expect_equal(_row(expected, b), oracle.attention(q[b : b + 1], k, v, SCALE))
    assert not expected.values[1].any()


def test_no_sequences() -> None:
    nothing, cache, none = np.zeros((0, 4, 8), BF16), np.zeros((2, 4, 2, 8), BF16), int32([])
    assert oracle.decode_attention(nothing, cache, cache, none, none, SCALE).values.shape == (0, 4, 8)
    assert oracle.paged_attention(nothing, cache, cache, int32(np.zeros((0, 3))), none, SCALE).values.shape == (0, 4, 8)


def test_attention_varlen(rng: np.random.Generator) -> None:
    """Each sequence is as it is alone, and those before and behind do not matter."""
    cu_seqlens_q, cu_seqlens_k = int32([0, 3, 3, 4, 9]), int32([0, 5, 6, 13, 15])
    q, k, v = draw(rng, 9, 6, 8, scale=4), draw(rng, 15, 2, 8), draw(rng, 15, 2, 8)
    expected = oracle.attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, SCALE)
    for b in range(4):
        queries, keys = slice(*cu_seqlens_q[b : b + 2]), slice(*cu_seqlens_k[b : b + 2])
        alone = oracle.attention(q[queries], k[keys], v[keys], SCALE)
        expect_equal(Expected(expected.values[queries], np.asarray(expected.allowed)[queries], BF16), alone)
    k[:5] = v[:5] = np.nan
    other = oracle.attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, SCALE)
    assert np.array_equal(other.values[3:], expected.values[3:])
    assert not np.isfinite(other.values[:3]).any()


def _row(expected: Expected, b: int) -> Expected:
    return Expected(expected.values[b : b + 1], np.asarray(expected.allowed)[b : b + 1], expected.dtype)
