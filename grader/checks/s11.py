"""Stage 11: attention in one pass over tiles of keys, with the online softmax."""

import math
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
from given.launch import LaunchFile
from numpy.random import Generator

from grader import oracle
from grader.checking.api import BF16, Band, Out, Worker, check, expect, property_check, require
from grader.checking.draws import Array, to_bf16
from grader.checks.support.attention import (
    LONGEST,
    draw_attention,
    draw_decode,
    expect_attention,
    expect_decode,
    expect_decoded_in_model,
    expect_far_decode_scores,
    expect_far_scores,
    expect_rounded_attention,
    sloping_keys,
)
from grader.checks.support.launches import expect_counted, expect_rounded
from grader.checks.support.parallelism import expect_parallel
from grader.checks.support.plug_in import expect_in_model
from grader.oracle.references import ReferenceModel

FLASH, DECODE = "flash_attention", "flash_decode_attention"
LONG, SHARED = 16_384, 48 << 10
"""This many keys, whose scores of 64 KB do not fit into this many bytes of shared memory."""
CONTEXTS = (5,), (0,), (1, 0, 40), (15, 16, 17, 31, 32, 33), (63, 64, 65), (127, 128, 129, 2), (400, 255), ()
HEADS = (32, 8), (6, 2), (28, 4), (5, 5)
HEAD_SIZES = 8, 24, 40, 64, 120, 128
SLOPES = 0.05, -0.05, 2.0, -2.0, 100.0, -100.0
"""Of scores from key to key, up to far past 88."""
LARGEST_SHARE = 1.1
"""How often a key or a value may be requested per query head, and an output stored."""


def expect_requested_once(emulator: Worker, op: str, arguments: Sequence[Any], rows: int) -> None:
    """Raise Failure unless keys and values (arguments 2 and 3) are requested about once per query head.

    `rows` is the number of keys, counted once for each query head. The output (argument 0) must be stored once.
    """
    out, q = arguments[0], arguments[1]
    counted = expect_counted(emulator, op, *arguments)
    allowed = LARGEST_SHARE * rows * q.shape[2] * BF16.itemsize
    for name, argument in (("keys", 2), ("values", 3)):
        requested, _ = counted.of(argument)
        require(
            requested <= allowed,
            f"{op} requests {requested:,} bytes of {name}; once per query head and {LARGEST_SHARE} times at most are "
            f"{allowed:,.0f}. Keep a tile in shared memory, for all of its queries.",
            "TOO_SLOW",
            figure=requested,
            threshold=allowed,
        )
    _, stored = counted.of(0)
    allowed = LARGEST_SHARE * math.prod(out.shape) * BF16.itemsize
    require(
        stored <= allowed,
        f"{op} stores {stored:,} bytes of out; {allowed:,.0f} are allowed: keep sums in registers, store them once.",
        "TOO_SLOW",
        figure=stored,
        threshold=allowed,
    )


@check("s11.1")
def prompt_lengths(worker: Worker, rng: Generator) -> None:
    """flash_attention is right for prompts of 1 to 130 tokens, with head sizes of 8 to 128 and all head counts."""
    for length in (5, 0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65):
        expect_attention(worker, FLASH, *draw_attention(rng, length, length, 12, 4, 24))
    for length in (97, 127, 128, 129, 130):
        expect_attention(worker, FLASH, *draw_attention(rng, length, length, 2, 1, 24))
    for head_count, kv_heads in HEADS:
        expect_attention(worker, FLASH, *draw_attention(rng, 37, 37, head_count, kv_heads, 8))
    for head_dim in HEAD_SIZES:
        expect_attention(worker, FLASH, *draw_attention(rng, 70, 70, 3, 1, head_dim))
    expect_rounded_attention(worker, FLASH, rng)


@check("s11.2")
def contexts(worker: Worker, rng: Generator) -> None:
    """flash_decode_attention sees each sequence's tokens and no others, of 0 to 400, for all head sizes and counts."""
    for heads, kv_heads, head_dim in ((4, 1, 16), (12, 4, 24), (7, 7, 64)):  # the first are small enough to be checked
        for lengths in CONTEXTS:
            expect_decode(worker, DECODE, draw_decode(rng, lengths, heads, kv_heads, head_dim))
    for head_count, kv_heads in HEADS:
        expect_decode(worker, DECODE, draw_decode(rng, (3, 37), head_count, kv_heads, 8))
    for head_dim in HEAD_SIZES:
        for lengths in ((9, 3), (140, 9)):
            expect_decode(worker, DECODE, draw_decode(rng, lengths, 2, 1, head_dim))
    q, *others = draw_decode(rng, (140, 9), 8, 2, 128)
    expect_rounded(worker, DECODE, Out(q.shape), q, *others, 0.1)


@check("s11.3")
def masked_tiles(worker: Worker, rng: Generator) -> None:
    """The last query sees the last key, some see none, and what a query does not see may be anything, NaN too."""
    for queries, keys in ((3, 8), (1, 5), (2, 300), (7, 33), (33, 40), (65, 64), (5, 2), (3, 1), (2, 0), (130, 3)):
        expect_attention(worker, FLASH, *draw_attention(rng, queries, keys, 4, 2, 24))
    for queries, keys, hidden in ((4, 4, 2), (6, 30, 5), (40, 64, 20), (33, 70, 32), (65, 65, 40)):
        q, k, v = draw_attention(rng, queries, keys, 4, 2, 24)
        k[-hidden:], v[-hidden:] = 1e4, np.nan
        out = worker.launch(FLASH, Out(q.shape), q, k, v, 0.2)
        want = oracle.attention(q[:-hidden], k[:-hidden], v[:-hidden], 0.2)
        expect(out[:-hidden], want, f"out[:{queries - hidden}]")


@check("s11.4")
def late_maximum(worker: Worker, rng: Generator) -> None:
    """flash_attention is right when scores rise or fall over many tiles, and for 16,384 keys with at most 48 KB."""
    for slope in SLOPES:
        q, _, v = draw_attention(rng, 300, 300, 2, 2, 64)
        expect_attention(worker, FLASH, np.ones_like(q), sloping_keys(300, 2, 64, slope), v)
    expect_far_scores(worker, FLASH)
    expect_attention(worker, FLASH, *draw_attention(rng, 2, LONG, 2, 1, 64))
    expect_little_shared(worker, FLASH)


@check("s11.5")
def late_maximum_in_a_cache(worker: Worker, rng: Generator) -> None:
    """flash_decode_attention is right when scores rise or fall, and for 16,384 keys with at most 48 KB."""
    for slope in SLOPES:
        q, _, v = draw_attention(rng, 2, 300, 2, 2, 64)
        k = sloping_keys(300, 2, 64, slope)
        slots, lengths = np.array([1, 0], np.int32), np.array([300, 133], np.int32)
        expect_decode(worker, DECODE, (np.ones_like(q), np.stack([k, k]), np.stack([v, -v]), slots, lengths))
    expect_far_decode_scores(worker, DECODE, rng)
    q, k, v = draw_attention(rng, 1, LONG, 2, 1, 64)
    slots, lengths = np.zeros(1, np.int32), np.array([LONG], np.int32)
    expect_decode(worker, DECODE, (q, k[None], v[None], slots, lengths))
    expect_little_shared(worker, DECODE)


def expect_little_shared(worker: Worker, op: str) -> None:
    dims = {"L": 2, "S": LONG, "B": 1, "length": LONG, "num_slots": 1, "Hq": 2, "Hkv": 1, "D": 64}
    _, _, shared = LaunchFile(worker.engine / "launch.toml").geometry(op, dims)
    require(
        shared <= SHARED,
        f"{op} asks for {shared:,} bytes of shared memory for {LONG:,} keys; at most {SHARED:,} are allowed.",
        "OUT_OF_MEMORY",
    )


@check("s11.6")
@property_check(
    lengths=st.lists(st.integers(0, 190), min_size=1, max_size=2),
    group=st.integers(1, 4),
    kv_heads=st.integers(1, 2),
    head_dim=st.sampled_from([8, 24, 32]),
)
def property_of_contexts(
    worker: Worker, rng: Generator, lengths: list[int], group: int, kv_heads: int, head_dim: int
) -> None:
    """flash_decode_attention is right for any contexts and heads, with the precision of float32 sums."""
    expect_decode(worker, DECODE, draw_decode(rng, lengths, group * kv_heads, kv_heads, head_dim))


@check("s11.7")
@property_check(
    queries=st.integers(0, 40),
    past=st.integers(0, 150),
    group=st.integers(1, 4),
    kv_heads=st.integers(1, 2),
    head_dim=st.sampled_from([8, 24, 32]),
    shift=st.sampled_from([0.0, 3.0]),
)
def property_of_shapes(
    worker: Worker, rng: Generator, queries: int, past: int, group: int, kv_heads: int, head_dim: int, shift: float
) -> None:
    """flash_attention is right for any numbers of queries, keys and heads, with the precision of float32 sums."""
    q, k, v = draw_attention(rng, queries, queries + past, group * kv_heads, kv_heads, head_dim)
    expect_attention(worker, FLASH, q, k, to_bf16(v + np.float32(shift)))


@check("s11.8")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """flash_attention shares its work among threads that never race, more of them for more queries."""
    keys = int(rng.integers(66, 80))
    few, many = ((Out((n, 4, 24)), *draw_attention(rng, n, keys, 4, 2, 24), 0.2) for n in (2, 64))
    expect_parallel(emulator, worker, FLASH, few, many)


@check("s11.9")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your flash_attention runs in all of its layers."""
    expect_in_model(tiny, attention=lambda q, *others: worker.launch(FLASH, Out(q.shape), q, *others))


@check("s11.10")
def requested_once(emulator: Worker, rng: Generator, expect_band: Band) -> None:
    """flash_attention requests keys and values at most 1.1 times per query head, and stores out once."""
    for queries, keys in ((1, int(rng.integers(97, 110))), (16, int(rng.integers(97, 110))), (16, 16)):
        q, k, v = draw_attention(rng, queries, keys, 4, 2, 24)
        expect_requested_once(emulator, FLASH, [Out(q.shape), q, k, v, 0.2], 4 * keys)
    expect_band("s11", 0.5)


@check("s11.11")
def requested_once_from_a_cache(emulator: Worker, rng: Generator, expect_band: Band) -> None:
    """flash_decode_attention requests each context's keys and values at most 1.1 times per query head."""
    for lengths in (tuple(rng.integers(40, 70, 2)), (1, 17)):
        arguments = draw_decode(rng, lengths, 4, 2, 24)
        expect_requested_once(emulator, DECODE, [Out(arguments[0].shape), *arguments, 0.2], 4 * sum(lengths))
    expect_band("s11", 0.25)


@check("s11.12")
def parallelism_in_a_cache(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """flash_decode_attention shares its work among threads that never race, more of them for more sequences."""
    context = int(rng.integers(132, 160))
    one, eight = ((Out((n, 4, 24)), *draw_decode(rng, [context] * n, 4, 1, 24), 0.2) for n in (1, 8))
    expect_parallel(emulator, worker, DECODE, one, eight)


@check("s11.13")
def decoded_in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your flash_decode_attention serves each of its tokens."""

    def attend(q: Array, keys: Array, values: Array, lengths: Array, scale: float) -> Array:
        slots = np.zeros(len(q), np.int32)
        return worker.launch(DECODE, Out(q.shape), q, keys, values, slots, lengths, scale)

    expect_decoded_in_model(tiny, attend, LONGEST)
