"""Mistakes that kernels often have, each as what a kernel returns with it: a failing result is held against them.

A function here takes what the operation's reference takes and yields `Suspect`s; it runs only when a check has failed.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from typing import Any, ParamSpec

import numpy as np
from given.contracts import BF16

from grader.judge.compare import Expected, Suspect
from grader.oracle import cache_operations, operations
from grader.oracle.attention_suspects import (
    near,
    of_attention,
    of_decode_attention,
    of_paged_attention,
)
from grader.oracle.operations import Array, Values

P = ParamSpec("P")

LARGEST = 1 << 24
"""Products of a matrix product, the most for which suspects are computed."""

BEHIND = (
    "The caches hold NaN wherever no context reaches: the kernel read such a place, at a position from context_lens[b] "
    "on, or {elsewhere}."
)


def suspecting(
    reference: Callable[P, Expected], suspects: Callable[P, Iterator[Suspect]], about_nan: str = ""
) -> Callable[P, Expected]:
    """`reference` whose results know the suspects of the same inputs, and of NaN in them."""

    @wraps(reference)
    def call(*arguments: P.args, **options: P.kwargs) -> Expected:
        right = reference(*arguments, **options)
        return replace(right, suspects=partial(suspects, *arguments, **options), about_nan=about_nan)

    return call


# Elements and rows


def of_embedding(table: Array, ids: Array) -> Iterator[Suspect]:
    if len(ids) <= len(table):
        yield Suspect("copies row t of the table, not row ids[t]", operations.embedding(table, np.arange(len(ids))))


def of_residual_add(x: Array, y: Array) -> Iterator[Suspect]:
    yield Suspect("stores y, without x", Expected(y, 0, y.dtype))
    yield Suspect("subtracts y", operations.residual_add(x, np.negative(y)))


def of_silu_mul(gate: Array, up: Array) -> Iterator[Suspect]:
    ones = np.ones_like(up)
    yield Suspect("takes up for gate and gate for up", operations.silu_mul(up, gate))
    yield Suspect("reads up for gate too", operations.silu_mul(up, up))
    yield Suspect("leaves out the product with up", operations.silu_mul(gate, ones))
    yield Suspect("has the wrong sign in exp(-gate)", _products(gate, 1 - _sigmoid(gate), up))
    yield Suspect("leaves out the factor gate: silu(g) is g · sigmoid(g)", _products(_sigmoid(gate), up))
    yield Suspect("leaves out the sigmoid", _products(gate, up))
    with np.errstate(all="ignore"):
        grown = np.exp(gate.astype(np.float32))
        overflowing = _products(gate, grown / (1 + grown), up)
    yield Suspect(
        "computes expf(g) / (1 + expf(g)), infinity / infinity from 89 on: 1 / (1 + expf(-g)) is not", overflowing
    )


def _sigmoid(x: Array) -> Values:
    with np.errstate(all="ignore"):
        return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))))


def _products(*factors: Any) -> Expected:
    with np.errstate(all="ignore"):
        product = np.ones(factors[-1].shape)
        for factor in factors:
            product = product * np.asarray(factor).astype(np.float64)
        return near(product)


def of_rmsnorm(x: Array, weight: Array, eps: float) -> Iterator[Suspect]:
    rows, ones = x.astype(np.float64), np.ones_like(weight)
    with np.errstate(all="ignore"):
        mean = np.mean(rows**2, axis=-1, keepdims=True)
        centred = rows - np.mean(rows, axis=-1, keepdims=True)
    width = max(x.shape[-1], 1)

    def scaled(divisor: Values) -> Expected:
        return _products(1 / divisor, rows, weight)

    with np.errstate(all="ignore"):
        yield Suspect("leaves out eps", operations.rmsnorm(x, weight, 0.0))
        yield Suspect("adds eps outside of the root", scaled(np.sqrt(mean) + eps))
        yield Suspect("divides by the sum's root, not by the mean's", scaled(np.sqrt(mean * width + eps)))
        yield Suspect("leaves out the root", scaled(mean + eps))
        yield Suspect("leaves out the weight", operations.rmsnorm(x, ones, eps))
        deviation = np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + eps)
        yield Suspect("subtracts the mean first, as LayerNorm does", _products(1 / deviation, centred, weight))
        yield Suspect("leaves out the division", _products(rows, weight))


def of_softmax(x: Array) -> Iterator[Suspect]:
    with np.errstate(all="ignore"):
        plain = np.exp(x.astype(np.float32)).astype(np.float64)
        largest = np.max(x.astype(np.float64), axis=-1, keepdims=True, initial=-np.inf)
        shifted = np.exp(x.astype(np.float64) - largest)
        naive = plain / np.sum(plain, axis=-1, keepdims=True, dtype=np.float32)
    yield Suspect("does not subtract the maximum before expf", near(naive, np.float32))
    yield Suspect("does not divide by the sum", near(shifted, np.float32))
    yield Suspect("divides by the sum of all rows", near(shifted / np.sum(shifted), np.float32))


def of_matmul(x: Array, weight: Array, dtype: Any = BF16) -> Iterator[Suspect]:
    (m, k), n = x.shape, len(weight)
    if m * n * k > LARGEST or k == 0:
        return

    def product(rows: Array, columns: Array) -> Expected:
        return operations.matmul(rows, columns, dtype)

    yield Suspect(
        "reads w as [K, N], w[k * N + n] (in cuBLAS: OP_N for OP_T): it is [N, K], w[n * K + k]",
        product(x, weight.reshape(k, n).T),
    )
    yield Suspect("reads x as [K, M], x[k * M + m]: it is [M, K], x[m * K + k]", product(x.reshape(k, m).T, weight))
    yield Suspect("writes out as [N, M], out[n * M + m]: it is [M, N]", _reordered(product(x, weight), n, m))
    yield Suspect("leaves out the last term of each sum", product(x[:, :-1], weight[:, :-1]))
    for tile in (8, 16, 32):
        whole = k // tile * tile
        if 0 < whole < k:
            mistake = f"leaves out the last terms of each sum, those after the last whole tile of {tile}"
            yield Suspect(mistake, product(x[:, :whole], weight[:, :whole]))


def _reordered(expected: Expected, rows: int, columns: int) -> Expected:
    """The transposes of values and allowances, in the memory of the array as it should be."""
    values, allowed = (np.asarray(part).T.reshape(columns, rows) for part in (expected.values, expected.allowed))
    return replace(expected, values=values, allowed=allowed)


# In place


def residual_add(x: Array, y: Array) -> Expected:
    """The reference with its suspects."""
    return replace(operations.residual_add(x, y), before=x, suspects=partial(of_residual_add, x, y))


def rope(q: Array, k: Array, cos: Array, sin: Array, positions: Array) -> tuple[Expected, Expected]:
    """The references of both arrays with their suspects."""
    right = operations.rope(q, k, cos, sin, positions)

    def suspects(which: int) -> Iterator[Suspect]:
        rows = np.minimum(np.arange(len(positions)), max(len(cos) - 1, 0))
        yield Suspect("takes row t of the tables, not row positions[t]", operations.rope(q, k, cos, sin, rows)[which])
        first = operations.rope(q, k, cos, sin, np.zeros_like(positions))[which]
        yield Suspect("takes row 0 of the tables for every token, not row positions[t]", first)
        yield Suspect("has the wrong sign at the sine", operations.rope(q, k, cos, np.negative(sin), positions)[which])
        apart = operations.rope(_apart(q), _apart(k), cos, sin, positions)[which]
        neighbours = _together(apart.values), _together(np.asarray(apart.allowed))
        yield Suspect("turns the pairs (2i, 2i + 1): they are (i, i + D/2)", Expected(*neighbours, BF16))

    first, second = (
        replace(expected, before=before, suspects=partial(suspects, which))
        for which, (expected, before) in enumerate(zip(right, (q, k), strict=True))
    )
    return first, second


def _apart(x: Array) -> Array:
    """The numbers of even index, then those of odd index."""
    return np.concatenate([x[..., ::2], x[..., 1::2]], axis=-1)


def _together(x: Array) -> Array:
    """What `_apart` has parted."""
    return np.stack(np.split(x, 2, axis=-1), axis=-1).reshape(x.shape)


def write_kv(
    key_cache: Array, value_cache: Array, k: Array, v: Array, slot_mapping: Array
) -> tuple[Expected, Expected]:
    """The references of both caches with their suspects."""
    caches = key_cache, value_cache
    right = cache_operations.write_kv(*caches, k, v, slot_mapping)

    def suspects(which: int) -> Iterator[Suspect]:
        exchanged = cache_operations.write_kv(*caches, v, k, slot_mapping)
        yield Suspect("writes values to key_cache and keys to value_cache", exchanged[which])
        if len(k) <= len(key_cache.reshape(-1, *k.shape[1:])):
            in_order = cache_operations.write_kv(*caches, k, v, np.arange(len(k)))
            yield Suspect("writes row t of the caches, not row slot_mapping[t]", in_order[which])

    first, second = (
        replace(expected, before=before, suspects=partial(suspects, which))
        for which, (expected, before) in enumerate(zip(right, caches, strict=True))
    )
    return first, second


# The references with their suspects

embedding = suspecting(operations.embedding, of_embedding)
silu_mul = suspecting(operations.silu_mul, of_silu_mul)
rmsnorm = suspecting(operations.rmsnorm, of_rmsnorm)
softmax = suspecting(operations.softmax, of_softmax)
matmul = suspecting(operations.matmul, of_matmul)
attention = suspecting(operations.attention, of_attention)
decode_attention = suspecting(
    cache_operations.decode_attention, of_decode_attention, BEHIND.format(elsewhere="in another row than slots[b]")
)
paged_attention = suspecting(
    cache_operations.paged_attention,
    of_paged_attention,
    BEHIND.format(elsewhere="in another block than block_tables[b, j / block_size]"),
)
