"""Stage 12, second part: prefill and decode of a batch."""

from functools import partial

from grader.checking.api import Band, Worker, check, expect_error, expect_rows
from grader.checks.batching import expect_batch
from grader.checks.cached_model import CachedModel, expect_stored
from grader.checks.step_work import SPARE_LAUNCHES, expect_no_more, expect_products, watch
from grader.oracle.references import ReferenceModel


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
            call = partial(worker.call, model.model.method(method), batch, model.cache.handle, sequences)
            expect_error(call, error)
    last = model.decode_batch([ids[16], ids[5]], (0, 2))
    for row, position in enumerate((16, 5)):
        rows = slice(position, position + 1)
        expect_rows(last[row : row + 1], prompt.float32.logits[rows], prompt.bf16.logits[rows])
    expect_error(partial(model.decode_batch, [5, 5], (2, 0)), "RequestTooLong")
    expect_stored(model, tiny.oracle, ids[:6], 2)
    expect_stored(model, tiny.oracle, ids, 0)


@check("s12.8")
def steps_of_a_batch(emulator: Worker, tiny: ReferenceModel, expect_band: Band) -> None:
    """decode_batch of 8 sequences needs no more launches, products and copies than of one, and 2 to spare."""
    model, prompts = eight(emulator, tiny)
    model.prefill_batch(prompts)
    model.decode_batch([5] * 8)
    one = watch(emulator, partial(model.decode_batch, [7], (3,)))
    all_ = watch(emulator, partial(model.decode_batch, [7, 9] * 4))
    expect_no_more("decode_batch of 8", all_, "One sequence", one, SPARE_LAUNCHES)
    expect_products("decode_batch of 8", all_, tiny.config, 8, 8)
    expect_band("s12", 0.25)


@check("s12.9")
def packed_prompts(emulator: Worker, tiny: ReferenceModel, expect_band: Band) -> None:
    """prefill_batch of 8 prompts needs as little, computes no token of padding, and logits of last tokens only."""
    model, prompts = eight(emulator, tiny)
    one = watch(emulator, partial(model.prefill_batch, prompts[3:4], (5,)))
    all_ = watch(emulator, partial(model.prefill_batch, prompts))
    expect_no_more("prefill_batch of 8", all_, "One prompt", one, SPARE_LAUNCHES)
    expect_products("prefill_batch of 8", all_, tiny.config, sum(map(len, prompts)), 8)
    expect_band("s12", 0.5)


def eight(emulator: Worker, tiny: ReferenceModel) -> tuple[CachedModel, list[list[int]]]:
    ids = tiny.reference("plain_text").ids.tolist()
    prompts = [ids[:length] for length in (5, 31, 1, 17, 62, 3, 16, 40)]
    return CachedModel(emulator, tiny.folder, tiny.config, 8, 70), prompts
