"""Stage 12: sequences packed one after the other, so that one pass serves them all.

First the kernel, then prefill and decode of a batch.
"""

from collections.abc import Callable, Sequence
from functools import partial

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import (
    Band,
    DeviceActivity,
    Failure,
    Out,
    Worker,
    check,
    expect,
    expect_error,
    expect_rows,
    expect_success,
    property_check,
    require,
)
from grader.checking.draws import Array, bf16
from grader.checks.support.attention import draw_attention
from grader.checks.support.cached_model import (
    SPARE_LAUNCHES,
    CachedModel,
    expect_no_more,
    expect_products,
    expect_stored,
)
from grader.checks.support.parallelism import expect_parallel
from grader.checks.support.plug_in import expect_in_model
from grader.oracle.llama import Reference
from grader.oracle.references import ReferenceModel

OP = "attention_varlen"
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
        _expect_step(prompts, lengths, order, sequences, step, logits)
        if sequences is not None:
            order = order[1:] + order[:1]


def _expect_step(
    prompts: Sequence[Reference],
    lengths: Sequence[int],
    order: Sequence[int],
    sequences: Sequence[int] | None,
    step: int,
    logits: Array,
) -> None:
    """Judge the logits of one step, a row for each prompt in this order; a row that is another's is named."""

    def judge(row: int, b: int, name: str = "") -> None:
        at, reference = slice(lengths[b] + step - 1, lengths[b] + step), prompts[b]
        expect_rows(logits[row : row + 1], reference.float32.logits[at], reference.bf16.logits[at], name)

    numbers = [b if sequences is None else sequences[b] for b in range(len(prompts))]
    failures = []
    for row, b in enumerate(order):
        try:
            judge(row, b, f"the row of logits of slot {numbers[b]}")
        except Failure as failure:
            failures.append((row, failure))
    if not failures:
        return
    row, first = failures[0]
    owner = next((numbers[other] for other in order if _holds(judge, row, other)), None)
    if owner is not None:
        told = f"Row {row} has the logits of slot {owner}"
        first.evidence["hint"] = f"{told}: row b belongs to slots[b], and without slots to slot b."
    elif len(failures) < len(order):
        rows = f"Of the rows 0 to {len(order) - 1} these are wrong: {', '.join(str(wrong) for wrong, _ in failures)}"
        prefill = "does each prompt begin at position 0, and cu_seqlens say where it begins?"
        decode = "has each slot its own position, length and table, and its prompt positions from 0 on?"
        first.evidence["hint"] = f"{rows}; {decode if step else prefill}"
    raise first


def _holds(judge: Callable[[int, int], None], row: int, prompt: int) -> bool:
    try:
        judge(row, prompt)
    except Failure:
        return False
    return True


@check("s12.1")
def packed_lengths(worker: Worker, rng: Generator) -> None:
    """attention_varlen is right for sequences of any lengths side by side: none, empty ones, many short ones."""
    many = tuple(int(length) for length in rng.integers(1, 4, size=70))
    for heads, kv_heads, head_dim in ((4, 1, 8), (12, 4, 24)):  # the first are small enough to be checked
        for lengths in (*LENGTHS, many):
            expect_packed(worker, draw_packed(rng, [(n, n) for n in lengths], heads, kv_heads, head_dim))
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


@check("s12.4")
@property_check(
    queries_and_past=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=5),
    heads_per_kv_head=st.integers(1, 4),
    num_kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 24, 64, 128]),
)
def property_of_packing(
    worker: Worker,
    rng: Generator,
    queries_and_past: list[tuple[int, int]],
    heads_per_kv_head: int,
    num_kv_heads: int,
    head_dim: int,
) -> None:
    """attention_varlen is right for any sequences, of new tokens behind any past, and any heads."""
    counts = [(queries, queries + past) for queries, past in queries_and_past]
    expect_packed(worker, draw_packed(rng, counts, heads_per_kv_head * num_kv_heads, num_kv_heads, head_dim))


@check("s12.5")
def wrong_batches(worker: Worker, tiny: ReferenceModel) -> None:
    """A batch with one wrong prompt, token or sequence is refused as a whole, and changes no sequence."""
    prompt = tiny.reference("seventeen_tokens")
    ids = prompt.ids.tolist()
    model = CachedModel(worker, tiny.folder, tiny.config, 3, 17)
    model.prefill_batch([ids[:5], ids[:16]], (2, 0))
    good, unknown = ids[:3], tiny.config.vocab_size
    prompts: tuple[tuple[list[list[int]], list[int] | None, str, str], ...] = (
        ([], None, "ValueError", "the batch is empty"),
        ([good, []], None, "ValueError", "prompt 1 is empty"),
        ([good, [unknown]], None, "ValueError", f"the ids are 0 to {unknown - 1}"),
        ([good, [-1]], None, "ValueError", f"the ids are 0 to {unknown - 1}"),
        ([good, good], [1, 1], "ValueError", "two prompts are for slot 1"),
        ([good, good], [0], "ValueError", "there is one slot for two prompts"),
        ([good], [0, 1], "ValueError", "there are two slots for one prompt"),
        ([good, good], [1, 3], "ValueError", "the slots are 0 to 2"),
        ([good, good], [-1, 1], "ValueError", "the slots are 0 to 2"),
        ([good] * 4, None, "ValueError", "the slots are 0 to 2, and there are 4 prompts"),
        ([good, [*ids, 5]], None, "RequestTooLong", "prompt 1 has 18 tokens, and max_length is 17"),
    )
    tokens: tuple[tuple[list[int], list[int] | None, str, str], ...] = (
        ([], [], "ValueError", "the batch is empty"),
        ([5, unknown], [0, 2], "ValueError", f"the ids are 0 to {unknown - 1}"),
        ([-1, 5], [0, 2], "ValueError", f"the ids are 0 to {unknown - 1}"),
        ([5, 5], [2, 2], "ValueError", "two tokens are for slot 2"),
        ([5, 5], [2], "ValueError", "there is one slot for two tokens"),
        ([5, 5], [2, 3], "ValueError", "the slots are 0 to 2"),
        ([5, 5], None, "ValueError", "slot 1 is empty: only a prefill begins one"),
    )
    for method, cases in (("prefill_batch", prompts), ("decode_batch", tokens)):
        for batch, sequences, error, because in cases:
            call = partial(worker.call, model.runner.method(method), batch, model.cache.handle, sequences)
            called = f"{method}({batch!r:.60}, cache, {sequences})"
            expect_error(call, error, called=called, because=because)
            model.cache.expect_lengths({0: 16, 1: 0, 2: 5}, f"{called} was refused")
    last = model.decode_batch([ids[16], ids[5]], (0, 2))
    for row, position in enumerate((16, 5)):
        rows = slice(position, position + 1)
        expect_rows(last[row : row + 1], prompt.float32.logits[rows], prompt.bf16.logits[rows])
    because = "slot 0 has 17 tokens, as many as max_length"
    call = partial(model.decode_batch, [5, 5], (2, 0))
    expect_error(call, "RequestTooLong", called="decode_batch([5, 5], cache, (2, 0))", because=because)
    expect_stored(model, tiny.oracle, ids[:6], 2)
    expect_stored(model, tiny.oracle, ids, 0)
    whole = partial(model.prefill_batch, [[0], ids, [unknown - 1]])
    because = "there are 3 slots of 17 tokens, and the first and the last id are ids"
    logits = expect_success(whole, "prefill_batch of 3 prompts, of 1, 17 and 1 tokens,", because)
    expect_rows(logits[1:2], prompt.float32.logits[16:], prompt.bf16.logits[16:])


@check("s12.6")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """attention_varlen shares its work among threads that never race, and more sequences get more of them."""
    few, many = ((Out((40 * n, 4, 24)), *draw_packed(rng, [(40, 40)] * n, 4, 2, 24), 0.2) for n in (1, 3))
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
    model, text, lengths = eight(emulator, tiny)
    model.prefill_batch([text.ids[:length].tolist() for length in lengths])
    counted_decode(model, text, lengths)
    one = counted_decode(model, text, lengths, (3,))
    all_ = counted_decode(model, text, lengths)
    expect_no_more("decode_batch of 8", all_, "One sequence", one, SPARE_LAUNCHES)
    expect_products("decode_batch of 8", all_, tiny.config, 8, 8)
    expect_band("s12", 0.25)


@check("s12.9")
def packed_prompts(emulator: Worker, tiny: ReferenceModel, expect_band: Band) -> None:
    """prefill_batch of 8 prompts needs as little, computes no token of padding, and logits of last tokens only."""
    model, text, lengths = eight(emulator, tiny)
    one = counted_prefill(model, text, lengths[3:4], (5,))
    all_ = counted_prefill(model, text, lengths)
    expect_no_more("prefill_batch of 8", all_, "One prompt", one, SPARE_LAUNCHES)
    expect_products("prefill_batch of 8", all_, tiny.config, sum(lengths), 8)
    expect_band("s12", 0.5)


def eight(emulator: Worker, tiny: ReferenceModel) -> tuple[CachedModel, Reference, list[int]]:
    """A model with room for 8 sequences, the text that all of them hold the beginning of, and its lengths."""
    model = CachedModel(emulator, tiny.folder, tiny.config, 8, 70)
    return model, tiny.reference("plain_text"), [5, 31, 1, 17, 59, 3, 16, 40]


def counted_prefill(
    model: CachedModel, text: Reference, lengths: Sequence[int], sequences: Sequence[int] | None = None
) -> DeviceActivity:
    """What the device does in a prefill of beginnings of the text; their logits are judged too."""
    with model.worker.observe() as seen:
        logits = model.prefill_batch([text.ids[:length].tolist() for length in lengths], sequences)
    expect_last_rows(text, lengths, logits)
    return seen


def counted_decode(
    model: CachedModel, text: Reference, lengths: list[int], sequences: Sequence[int] | None = None
) -> DeviceActivity:
    """The same for a decode of the text's next token in these sequences, or in all, which become longer by it."""
    rows = list(range(len(lengths)) if sequences is None else sequences)
    tokens = [int(text.ids[lengths[row]]) for row in rows]
    with model.worker.observe() as seen:
        logits = model.decode_batch(tokens, sequences)
    for row in rows:
        lengths[row] += 1
    expect_last_rows(text, [lengths[row] for row in rows], logits)
    return seen


def expect_last_rows(text: Reference, lengths: Sequence[int], logits: Array) -> None:
    at = [length - 1 for length in lengths]
    expect_rows(logits, text.float32.logits[at], text.bf16.logits[at])
