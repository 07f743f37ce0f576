"""Stage 12: sequences packed one after the other, so that one pass serves them all.

First the kernel, then prefill and decode of a batch.
"""

from collections.abc import Sequence
from functools import partial

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import Band, Out, Worker, check, expect, expect_error, expect_rows, property_check, require
from grader.checking.draws import Array, bf16
from grader.checks.support.attention import FAR_SCORES, draw_attention, equal_scores
from grader.checks.support.cached_model import (
    SPARE_LAUNCHES,
    CachedModel,
    expect_no_more,
    expect_products,
    expect_stored,
    watch,
)
from grader.checks.support.launches import expect_rounded
from grader.checks.support.parallelism import expect_parallel
from grader.checks.support.plug_in import expect_in_model
from grader.oracle.llama import Reference
from grader.oracle.references import ReferenceModel

OP = "attention_varlen"
EIGHT = (5, 31, 1, 17, 40, 3, 16, 57)
"""Tokens of 8 prompts whose work is counted."""
LENGTHS = (5,), (), (0, 0), (1,), (3, 0, 7), (15, 16, 17, 1, 0), (31, 32, 33), (64, 1, 65), (127, 129)


def cumulated(lengths: Sequence[int]) -> Array:
    """[len(lengths) + 1] int32: where each sequence begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def draw_packed(
    rng: Generator, lengths: Sequence[tuple[int, int]], heads: int, kv_heads: int, head_dim: int
) -> list[Array]:
    """q, k, v, cu_seqlens_q and cu_seqlens_k of sequences with these numbers of (queries, keys)."""
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


def expect_batch(
    model: CachedModel,
    prompts: Sequence[Reference],
    lengths: Sequence[int],
    sequences: Sequence[int] | None,
    steps: int,
) -> None:
    """Prefill the first lengths[b] tokens of each prompt, decode the next `steps`, and judge every row of logits.

    The sequences are decoded in another order in each step, if they are given.
    """
    logits = model.prefill_batch([p.ids[:n].tolist() for p, n in zip(prompts, lengths, strict=True)], sequences)
    order = list(range(len(prompts)))
    for step in range(steps + 1):
        if step:
            tokens = [int(prompts[b].ids[lengths[b] + step - 1]) for b in order]
            logits = model.decode_batch(tokens, sequences and [sequences[b] for b in order])
        for row, b in enumerate(order):
            rows = slice(lengths[b] + step - 1, lengths[b] + step)
            name = f"the row of logits of sequence {b if sequences is None else sequences[b]}"
            got, reference = logits[row : row + 1], prompts[b]
            expect_rows(got, reference.float32.logits[rows], reference.bf16.logits[rows], name)
        if sequences is not None:
            order = order[1:] + order[:1]


@check("s12.1")
def packed_lengths(worker: Worker, rng: Generator) -> None:
    """attention_varlen is right for sequences of any lengths side by side: none, empty ones, many short ones."""
    many = tuple(int(length) for length in rng.integers(1, 4, size=70))
    for heads, kv_heads, head_dim in ((4, 1, 8), (12, 4, 24)):  # the first are small enough to be checked
        for lengths in (*LENGTHS, many):
            expect_packed(worker, draw_packed(rng, [(n, n) for n in lengths], heads, kv_heads, head_dim))
    packed = draw_packed(rng, [(5, 60), (3, 9)], 4, 2, 64)
    expect_rounded(worker, OP, Out(packed[0].shape), *packed, 0.125)
    for pairs in ((3, 8), (1, 5), (2, 0), (0, 4)), ((1, 1), (33, 70), (5, 2), (1, 300)), ((40, 41), (0, 0), (2, 33)):
        expect_packed(worker, draw_packed(rng, pairs, 6, 2, 40))


@check("s12.2")
def rows_of_a_batch(worker: Worker, tiny: ReferenceModel) -> None:
    """prefill_batch and decode_batch give each sequence the logits it has alone: in any order, sequence and length."""
    names = ("seventeen_tokens", "plain_text", "repeated_token", "two_tokens", "special_tokens", "unusual_bytes")
    prompts = [tiny.reference(name) for name in names]
    model = CachedModel(worker, tiny.folder, tiny.config, 7, 70)
    expect_batch(model, prompts, (10, 60, 16, 1, 3, 33), (4, 0, 6, 1, 3, 2), 1)
    expect_batch(model, prompts[:3], (15, 31, 17), None, 2)
    expect_batch(model, prompts[4:5], (1,), (5,), 5)
    for sequence, prompt, length in ((3, prompts[4], 4), (4, prompts[0], 11), (1, prompts[1], 33)):
        expect_stored(model, tiny.oracle, prompt.ids[:length].tolist(), sequence)


@check("s12.3")
def apart(worker: Worker, rng: Generator) -> None:
    """A packed sequence sees its own tokens and no others: these may change, and be NaN, and it stays as it is."""
    for lengths in ((17, 20), (3, 40), (33, 1), (64, 32)):
        q, k, v, *starts = draw_packed(rng, [(n, n) for n in (*lengths, 9)], 4, 2, 24)
        before = expect_packed(worker, (q, k, v, *starts))
        own = slice(lengths[0], sum(lengths))
        for fill in (1e4, np.nan):
            changed = [bf16(rng, *array.shape) for array in (q, k, v)]
            changed[1][:], changed[2][:] = 100, fill
            for array, old in zip(changed, (q, k, v), strict=True):
                array[own] = old[own]
            after = worker.launch(OP, Out(q.shape), *changed, *starts, 24**-0.5)
            require(
                bool((after[own] == before[own]).all()),
                f"out[{own.start}:{own.stop}] changed with the tokens of other sequences packed beside it.",
            )
    for score in FAR_SCORES:  # all equal; what a sequence does not see would weigh 100
        q, k, v, starts_q, starts_k = draw_packed(rng, [(33, 33), (3, 20), (5, 40)], 4, 2, 24)
        q[:], k[:], v[:] = score, 1, 1
        v[starts_k[1] : starts_k[2]] = v[-1] = 100
        want = equal_scores(oracle.attention_varlen(q, k, v, starts_q, starts_k, 0.2))
        expect(worker.launch(OP, Out(q.shape), q, k, v, starts_q, starts_k, 0.2), want)


@check("s12.4")
@property_check(
    lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=5),
    group=st.integers(1, 4),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 24, 64, 128]),
)
def property_of_packing(
    worker: Worker, rng: Generator, lengths: list[tuple[int, int]], group: int, kv_heads: int, head_dim: int
) -> None:
    """attention_varlen is right for any sequences, of new tokens behind any past, and any heads."""
    counts = [(queries, queries + past) for queries, past in lengths]
    expect_packed(worker, draw_packed(rng, counts, group * kv_heads, kv_heads, head_dim))


@check("s12.5")
def wrong_batches(worker: Worker, tiny: ReferenceModel) -> None:
    """A batch with one wrong prompt, token or sequence is refused as a whole, and changes no sequence."""
    prompt = tiny.reference("seventeen_tokens")
    ids = prompt.ids.tolist()
    model = CachedModel(worker, tiny.folder, tiny.config, 3, 17)
    model.prefill_batch([ids[:5], ids[:16]], (2, 0))
    good, unknown = ids[:3], tiny.config.vocab_size
    prompts: tuple[tuple[list[list[int]], list[int] | None, str], ...] = (
        ([], None, "ValueError"),
        ([good, []], None, "ValueError"),
        ([good, [unknown]], None, "ValueError"),
        ([good, good], [1, 1], "ValueError"),
        ([good, good], [0], "ValueError"),
        ([good, good], [1, 3], "ValueError"),
        ([good, good], [-1, 1], "ValueError"),
        ([good] * 4, None, "ValueError"),
        ([good, [*ids, 5]], None, "RequestTooLong"),
    )
    tokens: tuple[tuple[list[int], list[int] | None, str], ...] = (
        ([], [], "ValueError"),
        ([5, unknown], [0, 2], "ValueError"),
        ([5, 5], [2, 2], "ValueError"),
        ([5, 5], [2], "ValueError"),
        ([5, 5], [2, 3], "ValueError"),
        ([5, 5], None, "ValueError"),  # sequence 1 is empty
    )
    for method, cases in (("prefill_batch", prompts), ("decode_batch", tokens)):
        for batch, sequences, error in cases:
            call = partial(worker.call, model.runner.method(method), batch, model.cache.handle, sequences)
            expect_error(call, error)
    last = model.decode_batch([ids[16], ids[5]], (0, 2))
    for row, position in enumerate((16, 5)):
        rows = slice(position, position + 1)
        expect_rows(last[row : row + 1], prompt.float32.logits[rows], prompt.bf16.logits[rows])
    expect_error(partial(model.decode_batch, [5, 5], (2, 0)), "RequestTooLong")
    expect_stored(model, tiny.oracle, ids[:6], 2)
    expect_stored(model, tiny.oracle, ids, 0)


@check("s12.6")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """attention_varlen shares its work among threads that never race, and more sequences get more of them."""
    length = int(rng.integers(38, 43))
    few, many = ((Out((length * n, 4, 24)), *draw_packed(rng, [(length, length)] * n, 4, 2, 24), 0.2) for n in (1, 3))
    expect_parallel(emulator, worker, OP, few, many)


@check("s12.7")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your kernel runs in all layers, other prompts beside each."""

    def attention(q: Array, k: Array, v: Array, scale: float) -> Array:
        starts = cumulated((7, len(q), 40))
        packed = [
            np.concatenate([np.resize(x[::-1], (7, *x.shape[1:])), x, np.resize(x, (40, *x.shape[1:]))])
            for x in (q, k, v)
        ]
        out: Array = worker.launch(OP, Out(packed[0].shape), *packed, starts, starts, scale)
        return out[7:-40]

    expect_in_model(tiny, attention=attention)


@check("s12.8")
def steps_of_a_batch(emulator: Worker, tiny: ReferenceModel, expect_band: Band) -> None:
    """decode_batch of 8 sequences needs no more launches, products and copies than of one, and 2 to spare."""
    model, prompt = eight(emulator, tiny)
    ids = prompt.ids.tolist()
    model.prefill_batch([ids[:length] for length in EIGHT])
    model.decode_batch([ids[length] for length in EIGHT])
    one = watch(emulator, partial(model.decode_batch, [ids[EIGHT[7] + 1]], (7,)), prompt, [EIGHT[7] + 1])
    rows = [EIGHT[slot] + 1 + (slot == 7) for slot in range(8)]
    all_ = watch(emulator, partial(model.decode_batch, [ids[row] for row in rows]), prompt, rows)
    expect_no_more("decode_batch of 8", all_, "One sequence", one, SPARE_LAUNCHES)
    expect_products("decode_batch of 8", all_, tiny.config, 8, 8)
    expect_band("s12", 0.25)


@check("s12.9")
def packed_prompts(emulator: Worker, tiny: ReferenceModel, expect_band: Band) -> None:
    """prefill_batch of 8 prompts needs as little, computes no token of padding, and logits of last tokens only."""
    model, prompt = eight(emulator, tiny)
    prompts = [prompt.ids[:length].tolist() for length in EIGHT]
    rows = [length - 1 for length in EIGHT]
    one = watch(emulator, partial(model.prefill_batch, prompts[3:4], (5,)), prompt, rows[3:4])
    all_ = watch(emulator, partial(model.prefill_batch, prompts), prompt, rows)
    expect_no_more("prefill_batch of 8", all_, "One prompt", one, SPARE_LAUNCHES)
    expect_products("prefill_batch of 8", all_, tiny.config, sum(map(len, prompts)), 8)
    expect_band("s12", 0.5)


def eight(emulator: Worker, tiny: ReferenceModel) -> tuple[CachedModel, Reference]:
    """A model with 8 slots, and a prompt that is longer than EIGHT."""
    return CachedModel(emulator, tiny.folder, tiny.config, 8, 70), tiny.reference("plain_text")
