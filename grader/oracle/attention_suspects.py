"""Mistakes in attention, over keys in an array or in a cache: the suspects of `grader.oracle.suspects`."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from given.contracts import BF16
from numpy.typing import NDArray

from grader.judge.compare import Expected, Suspect
from grader.oracle import operations
from grader.oracle.operations import Array, Values

LARGEST = 1 << 22
"""Elements of the caches, the most for which suspects are computed; an eighth of the products of all scores."""

TILES = (1, 8, 16, 32, 64, 128)
"""Keys of a tile, where a sum is not rescaled from tile to tile."""

PARTS = (32, 64)
"""Elements of a head that a warp, or two, hold one a lane."""

Attend = Callable[[Array, Array, Array, float], Expected]


def of_attention(q: Array, k: Array, v: Array, scale: float) -> Iterator[Suspect]:
    if q.size * max(len(k), 1) > LARGEST << 3:
        return
    for mistake, attend in (*_arithmetic(scale), *_layouts(), *_heads(q, k), *_masks(len(q), len(k))):
        yield Suspect(mistake, attend(q, k, v, scale))


def of_single_queries(
    gather: Callable[[Array, int], Sequence[Array]], q: Array, caches: tuple[Array, Array], scale: float
) -> Iterator[Suspect]:
    """Of kernels with one query a sequence; `gather(cache, more)` has the rows of each context, `more` than it has."""
    if sum(cache.size for cache in caches) > LARGEST:
        return
    rows = [gather(cache, 0) for cache in caches]
    if not len(q):
        return
    for mistake, attend in (*_arithmetic(scale), *_heads(q, caches[0][0])):
        yield Suspect(mistake, _single_queries(attend, q, rows, scale))
    for mistake, more in (
        ("leaves out the last position of a context", -1),
        ("reads one position more than a context has", 1),
    ):
        rows = [gather(cache, more) for cache in caches]
        yield Suspect(mistake, _single_queries(operations.attention, q, rows, scale))
    blocks, size, kv_heads, head_dim = caches[0].shape
    for which in (("key_cache",), ("value_cache",), ("key_cache", "value_cache")):
        read = [
            cache.reshape(blocks, kv_heads, size, head_dim).swapaxes(1, 2) if name in which else cache
            for name, cache in zip(("key_cache", "value_cache"), caches, strict=True)
        ]
        rows = [gather(cache, 0) for cache in read]
        mistake = f"reads {' and '.join(which)} as [blocks, Hkv, positions, D]: it is [blocks, positions, Hkv, D]"
        yield Suspect(mistake, _single_queries(operations.attention, q, rows, scale))


def of_decode_attention(
    q: Array, key_cache: Array, value_cache: Array, slots: Array, context_lens: Array, scale: float
) -> Iterator[Suspect]:
    caches = key_cache, value_cache

    def gather(cache: Array, more: int, rows: Array = slots) -> Sequence[Array]:
        contexts = zip(rows, context_lens, strict=True)
        return [cache[row, : max(length + more, 0)] for row, length in contexts]

    yield from of_single_queries(gather, q, caches, scale)
    if 0 < len(q) <= len(key_cache):
        rows = [gather(cache, 0, np.arange(len(q))) for cache in caches]
        mistake = "reads row b of the caches, not row slots[b]"
        yield Suspect(mistake, _single_queries(operations.attention, q, rows, scale))


def of_paged_attention(
    q: Array, key_cache: Array, value_cache: Array, block_tables: Array, context_lens: Array, scale: float
) -> Iterator[Suspect]:
    caches, size = (key_cache, value_cache), key_cache.shape[1]
    contexts = list(zip(block_tables, context_lens, strict=True))

    def gather(cache: Array, more: int) -> Sequence[Array]:
        return [_rows(cache, *_places(table, max(length + more, 0), size)) for table, length in contexts]

    def walked(places: Callable[[Array, Array], tuple[Array, Array]]) -> Expected:
        rows = [[_rows(cache, *places(table, np.arange(length))) for table, length in contexts] for cache in caches]
        return _single_queries(operations.attention, q, rows, scale)

    yield from of_single_queries(gather, q, caches, scale)
    if not contexts or key_cache.size > LARGEST:
        return
    yield Suspect(
        "does not look into block_tables, and takes the blocks 0, 1, 2 … of the pool",
        walked(lambda table, j: (j // size, j % size)),
    )
    yield Suspect(
        "looks only for the first block into block_tables, and takes those that follow it in the pool",
        walked(lambda table, j: (table[0] + j // size, j % size)),
    )
    first = block_tables[0]
    yield Suspect(
        "takes the block table of sequence 0 for all sequences",
        walked(lambda table, j: (first[np.minimum(j // size, len(first) - 1)], j % size)),
    )


def _places(table: Array, length: int, size: int) -> tuple[Array, Array]:
    positions = np.arange(length)
    return table[np.minimum(positions // size, len(table) - 1)], positions % size


def _rows(cache: Array, blocks: Any, offsets: Array) -> Array:
    """Rows of a pool; NaN for those of a block that it does not have."""
    inside = (blocks >= 0) & (blocks < len(cache))
    rows = cache[np.where(inside, blocks, 0), offsets].copy()
    rows[~inside] = np.nan
    return rows


def _single_queries(attend: Attend, q: Array, rows: Sequence[Sequence[Array]], scale: float) -> Expected:
    """One query a sequence; `rows` are the keys of all sequences and the values of all."""
    each = [attend(query[None], k, v, scale) for query, k, v in zip(q, *rows, strict=True)]
    results, allowed = (
        np.array(parts).reshape(q.shape) for parts in zip(*((e.values, e.allowed) for e in each), strict=True)
    )
    return Expected(results, allowed, BF16)


def _arithmetic(scale: float) -> Iterator[tuple[str, Attend]]:
    attention = operations.attention
    yield "does not multiply the scores by scale", lambda q, k, v, _: attention(q, k, v, 1.0)
    yield "multiplies the scores by scale twice", lambda q, k, v, _: attention(q, k, v, scale * scale)
    yield "divides the scores by scale", lambda q, k, v, _: attention(q, k, v, 1 / scale)
    for part in PARTS:
        mistake = f"takes only the first {part} elements of q and k into its scores"
        yield mistake, partial(_with_first, part)
    yield "does not subtract the maximum before expf", _softmax_without(subtract=False)
    yield "does not divide by the sum of the exponentials", _softmax_without(normalise=False)
    yield (
        "has no case of its own for a query that sees no key: 0 / 0 is NaN, and so is expf(-infinity - -infinity)",
        _softmax_without(guard=False),
    )
    for tile in TILES:
        words = "when a later tile has a larger maximum"
        yield f"does not rescale the output's sums {words}", _softmax_without(tile=tile, stale="sums")
        yield f"does not rescale the sum of the exponentials {words}", _softmax_without(tile=tile, stale="total")
        yield f"rescales neither sum {words}", _softmax_without(tile=tile, stale="both")


def _with_first(part: int, q: Array, k: Array, v: Array, scale: float) -> Expected:
    """With zeros behind the first elements of each query, which leave out those of the keys too."""
    return operations.attention(np.where(np.arange(q.shape[-1]) < part, q, np.zeros_like(q)), k, v, scale)


def _layouts() -> Iterator[tuple[str, Attend]]:
    def read(array: Array) -> Array:
        keys, kv_heads, head_dim = array.shape
        return array.reshape(kv_heads, keys, head_dim).swapaxes(0, 1)

    attention, it_is = operations.attention, "as [Hkv, S, D]: it is [S, Hkv, D]"
    yield f"reads k {it_is}", lambda q, k, v, scale: attention(q, read(k), v, scale)
    yield f"reads v {it_is}", lambda q, k, v, scale: attention(q, k, read(v), scale)
    yield f"reads k and v {it_is}", lambda q, k, v, scale: attention(q, read(k), read(v), scale)


def _heads(q: Array, k: Array) -> Iterator[tuple[str, Attend]]:
    heads, kv_heads = q.shape[1], k.shape[1]
    head = np.arange(heads)
    maps = {
        "h % Hkv": head % kv_heads,
        "h // Hkv": np.minimum(head // kv_heads, kv_heads - 1),
        "h": np.minimum(head, kv_heads - 1),
        "0": np.zeros(heads, int),
    }
    right = head // (heads // kv_heads)
    for formula, chosen in maps.items():
        if not np.array_equal(chosen, right):
            yield (
                f"takes key and value head {formula} for query head h: it is h / (Hq / Hkv), in whole numbers",
                partial(_with_heads, chosen),
            )


def _with_heads(chosen: Array, q: Array, k: Array, v: Array, scale: float) -> Expected:
    return operations.attention(q, k[:, chosen], v[:, chosen], scale)


def _masks(queries: int, keys: int) -> Iterator[tuple[str, Attend]]:
    """Of kernels that see other keys; each query's attention to its first keys is computed by itself."""

    def seeing(count: Callable[[int], int]) -> Attend:
        def attend(q: Array, k: Array, v: Array, scale: float) -> Expected:
            seen = [min(max(count(i), 0), len(k)) for i in range(len(q))]
            each = [operations.attention(q[i : i + 1], k[:n], v[:n], scale) for i, n in enumerate(seen)]
            return Expected(np.concatenate([e.values for e in each]), np.concatenate([e.allowed for e in each]), BF16)

        return attend

    first = keys - queries
    if not queries:
        return
    yield "lets query i see the keys 0 … i: with S > L it sees 0 … S - L + i", seeing(lambda i: i + 1)
    yield "has no causal mask: each query sees all keys", seeing(lambda i: keys)
    yield "lets a query see one key too few: key S - L + i, its own, counts", seeing(lambda i: first + i)
    yield "lets a query see one key too many", seeing(lambda i: first + i + 2)


def _softmax_without(
    *, subtract: bool = True, normalise: bool = True, guard: bool = True, tile: int = 0, stale: str = ""
) -> Attend:
    """Attention whose softmax lacks something; `stale` sums keep the factors of earlier maxima."""

    def attend(q: Array, k: Array, v: Array, scale: float) -> Expected:
        group = q.shape[1] // k.shape[1]
        by_head, keys, values = (np.moveaxis(array.astype(np.float32), 1, 0) for array in (q, k, v))
        keys, values = np.repeat(keys, group, axis=0), np.repeat(values, group, axis=0)
        with np.errstate(all="ignore"):
            scores = np.float32(scale) * (by_head @ keys.swapaxes(1, 2))
            scores = np.where(operations.causal_mask(len(q), len(k)), scores, np.float32(-np.inf))
            last = scores.max(axis=-1, keepdims=True, initial=-np.inf)
            maxima = _running_maxima(scores, tile) if tile else last
            weights, right = (np.exp(scores - largest * np.float32(subtract)) for largest in (maxima, last))
            empty = last == -np.inf
            weights, right = (np.where(empty, 0, part) for part in (weights, right))
            total = (weights if stale in ("total", "both") else right).sum(axis=-1, keepdims=True)
            out = (weights if stale in ("sums", "both") else right) @ values
            out = out / total if normalise else out
            if guard:
                out = np.where(empty, 0, out)
        return near(np.moveaxis(out, 0, 1).astype(np.float64), terms=float(np.abs(values).max(initial=0)))

    return attend


def _running_maxima(scores: NDArray[np.float32], tile: int) -> NDArray[np.float32]:
    """The largest score up to the end of each key's tile."""
    keys = scores.shape[-1]
    ends = np.minimum((np.arange(keys) // tile + 1) * tile, keys) - 1
    return np.asarray(np.maximum.accumulate(scores, axis=-1)[..., ends])


def near(values: Values, dtype: Any = BF16, terms: float = 0.0) -> Expected:
    """Values that a kernel with a mistake computes with about the precision of a right one."""
    share = 2.0**-6 if np.dtype(dtype) == BF16 else 2.0**-12
    with np.errstate(all="ignore"):
        allowed = share * np.abs(values) + 2.0**-7 * terms + 2.0**-100
    return Expected(values, np.where(np.isfinite(allowed), allowed, 0), dtype)
