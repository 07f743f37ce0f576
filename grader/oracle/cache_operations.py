"""References for the operations on a cache of keys and values: writing to it, and attention that reads from it.

A cache is [blocks, block_size, kv_heads, D], keys and values apart; a contiguous cache is one whose blocks are as long
as a sequence may become. What lies behind a context is never looked at: it may be NaN.
"""

from collections.abc import Iterable

import numpy as np
from given.contracts import BF16

from grader.judge.compare import Expected
from grader.oracle.operations import Array, attention


def write_kv(
    key_cache: Array, value_cache: Array, k: Array, v: Array, slot_mapping: Array
) -> tuple[Expected, Expected]:
    """(key_cache, value_cache) after row slot_mapping[t], over blocks and positions, became k[t] and v[t]; exact.

    k and v [tokens, kv_heads, D], slot_mapping [tokens]; −1 is skipped.
    """
    return _written(key_cache, k, slot_mapping), _written(value_cache, v, slot_mapping)


def _written(cache: Array, rows: Array, slot_mapping: Array) -> Expected:
    written = cache.copy()
    stored = np.asarray(slot_mapping) != -1
    written.reshape(-1, *cache.shape[2:])[slot_mapping[stored]] = rows[stored]
    return Expected(written, 0, cache.dtype)


def decode_attention(
    q: Array, key_cache: Array, value_cache: Array, slots: Array, context_lens: Array, scale: float
) -> Expected:
    """Attention of one query a sequence to the first context_lens[b] positions of row slots[b] of the caches.

    q [B, heads, D], slots and context_lens [B]. A context of 0 gives zeros.
    """
    contexts = list(zip(slots, context_lens, strict=True))
    keys, values = ([cache[slot, :length] for slot, length in contexts] for cache in (key_cache, value_cache))
    return _single_queries(q, keys, values, scale)


def paged_attention(
    q: Array, key_cache: Array, value_cache: Array, block_tables: Array, context_lens: Array, scale: float
) -> Expected:
    """As decode_attention; position j of sequence b is row j % block_size of block block_tables[b, j // block_size].

    block_tables [B, M]; entries behind the blocks that a context needs may be anything.
    """
    contexts = list(zip(block_tables, context_lens, strict=True))
    keys, values = ([_gathered(cache, *context) for context in contexts] for cache in (key_cache, value_cache))
    return _single_queries(q, keys, values, scale)


def _gathered(cache: Array, block_table: Array, length: int) -> Array:
    """The first `length` rows [length, kv_heads, D] that a block table names."""
    positions = np.arange(length)
    block_size = cache.shape[1]
    return cache[block_table[positions // block_size], positions % block_size]


def _single_queries(q: Array, keys: Iterable[Array], values: Iterable[Array], scale: float) -> Expected:
    each = [attention(query[None], k, v, scale) for query, k, v in zip(q, keys, values, strict=True)]
    results = np.array([expected.values for expected in each]).reshape(q.shape)
    return Expected(results, np.array([expected.allowed for expected in each]).reshape(q.shape), BF16)
