"""Stage 9: keys and values are kept, so that a further token costs the work of one token. First the kernels."""

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import InOut, Out, Worker, check, expect, property_check
from grader.checking.draws import Array, bf16, to_bf16
from grader.checks.attending import SPREAD, draw_decode, expect_decode
from grader.checks.caches import empty_cache
from grader.checks.parallelism import expect_parallel
from grader.checks.walking import LONGEST, expect_decoded_in_model
from grader.oracle.references import ReferenceModel

OP = "decode_attention"


def expect_written(worker: Worker, keys: Array, values: Array, k: Array, v: Array, slots: Array) -> tuple[Array, Array]:
    """Judge write_kv; returns the caches."""
    key_cache, value_cache = worker.launch("write_kv", InOut(keys), InOut(values), k, v, slots)
    want = oracle.write_kv(keys, values, k, v, slots)
    expect(key_cache, want[0], "key_cache")
    expect(value_cache, want[1], "value_cache")
    return key_cache, value_cache


@check("s09.1")
def write_rows(worker: Worker, rng: Generator) -> None:
    """write_kv copies keys and values to the rows named, in any order, skips −1, and leaves all other rows alone."""
    for tokens, blocks, size in ((1, 1, 1), (0, 2, 3), (2, 2, 1), (15, 1, 16), (16, 3, 16), (17, 2, 31), (127, 3, 50)):
        for kv_heads, head_dim in ((4, 24), (1, 8), (5, 128)):
            caches = empty_cache(blocks, size, kv_heads, head_dim), bf16(rng, blocks, size, kv_heads, head_dim)
            slots = rng.permutation(blocks * size)[:tokens].astype(np.int32)
            slots[rng.random(tokens) < 0.2] = -1
            k, v = (bf16(rng, tokens, kv_heads, head_dim) for _ in range(2))
            expect_written(worker, *caches, k, v, slots)


@check("s09.2")
def contexts(worker: Worker, rng: Generator) -> None:
    """decode_attention sees each sequence's own tokens and no others: in any row, of lengths 0 to the longest."""
    for lengths in ((5,), (0,), (1, 0, 40), (31, 32, 33, 2), (127, 128, 129, 16, 150), ()):
        for heads, kv_heads, head_dim in ((12, 4, 24), (4, 1, 8), (28, 4, 16)):
            expect_decode(worker, OP, draw_decode(rng, lengths, heads, kv_heads, head_dim))
    q, keys, values, *others = draw_decode(rng, (600, 257), 4, 2, 128)
    expect_decode(worker, OP, (q, keys, to_bf16(values + np.float32(3)), *others))


@check("s09.5")
@property_check(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    group=st.integers(1, 4),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 24, 64, 128]),
    slope=st.sampled_from([0.0, 2.0, -2.0, 1e3]),
)
def property_of_caches(
    worker: Worker, rng: Generator, lengths: list[int], group: int, kv_heads: int, head_dim: int, slope: float
) -> None:
    """What write_kv stores, decode_attention finds, for any heads and lengths, however scores rise, fall or differ."""
    slots, size = rng.permutation(4)[: len(lengths)].astype(np.int32), max(lengths) + 2
    rows = np.concatenate([slot * size + np.arange(length) for slot, length in zip(slots, lengths, strict=True)])
    rows = rng.permutation(rows).astype(np.int32)
    k, v = (bf16(rng, len(rows), kv_heads, head_dim) for _ in range(2))
    k = to_bf16(k + slope * (rows % size)[:, None, None] / head_dim)
    empty = empty_cache(4, size, kv_heads, head_dim)
    caches = expect_written(worker, empty, empty, k, v, rows)
    q = to_bf16(np.abs(bf16(rng, len(lengths), group * kv_heads, head_dim, scale=SPREAD)))
    expect_decode(worker, OP, (q, *caches, slots, np.array(lengths, np.int32)))


@check("s09.8")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """write_kv and decode_attention share their work among threads that never race, more of them for more tokens."""
    few, many = (write_arguments(rng, tokens) for tokens in (2, 64))
    expect_parallel(emulator, worker, "write_kv", few, many)
    one, eight = ((Out((n, 4, 24)), *draw_decode(rng, [64] * n, 4, 2, 24), 0.2) for n in (1, 8))
    expect_parallel(emulator, worker, OP, one, eight)


def write_arguments(rng: Generator, tokens: int) -> list[object]:
    caches = [InOut(bf16(rng, 4, 16, 4, 24)) for _ in range(2)]
    slots = rng.permutation(64)[:tokens].astype(np.int32)
    return [*caches, bf16(rng, tokens, 4, 24), bf16(rng, tokens, 4, 24), slots]


@check("s09.9")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your decode_attention serves each token in all layers."""

    def attend(q: Array, keys: Array, values: Array, contexts: Array, scale: float) -> Array:
        slots = np.zeros(len(q), np.int32)
        return worker.launch(OP, Out(q.shape), q, keys, values, slots, contexts, scale)

    expect_decoded_in_model(tiny, attend, LONGEST)
