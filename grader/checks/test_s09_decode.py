"""Stage 9, second part: prefill and decode of a model, and the cache that both share."""

from functools import partial

import numpy as np
from numpy.random import Generator

from grader.checking.api import Band, Worker, check, expect_error, expect_rows, require
from grader.checks.cached_model import CachedModel, expect_stored, expect_walk
from grader.checks.caches import Cache, Contents, read_rows
from grader.checks.step_work import expect_decode_bytes, expect_no_more, expect_products, watch
from grader.oracle.references import ReferenceModel


@check("s09.3")
def sequences_of_a_cache(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """KVCache keeps what each sequence was extended by, reads it back, attends to it, and forgets it when freed."""
    contents = Contents(Cache(worker, tiny.config, 3, 20), rng)
    steps = (({2: 5}, {2: 21}), ({0: 3, 2: 2, 1: 0}, {0: 1, 2: 16}), ({2: 12, 0: 1}, {1: 20, 2: 14}), ({2: 1}, {2: 2}))
    for counts, too_many in steps:
        expect_room(contents.cache, counts, True)
        expect_room(contents.cache, too_many, False)
        contents.extend(counts)
        contents.expect()
    expect_room(contents.cache, {2: 1}, False)
    contents.free(2)
    contents.extend({2: 7})
    contents.expect()


def expect_room(cache: Cache, counts: dict[int, int], room: bool) -> None:
    answer = cache.call("can_extend", counts)
    is_bool = isinstance(answer, bool | np.bool_)
    require(is_bool and answer == room, f"can_extend({counts}) must be {room}; it is {answer!r}.")


@check("s09.4")
def prefill_then_decode(worker: Worker, tiny: ReferenceModel) -> None:
    """prefill of n tokens and decode of the next ones give the reference logits, at n = 1, 15, 16 and 300."""
    longest = max(tiny.references, key=lambda reference: len(reference.ids))
    model = CachedModel(worker, tiny.folder, tiny.config, 1, len(longest.ids))
    for start in (1, 15, 16, 300):
        if start + 4 < len(longest.ids):
            expect_walk(model, longest, start, start + 4)
    for prompt in tiny.references:
        expect_walk(model, prompt, max(1, len(prompt.ids) - 4), len(prompt.ids))


@check("s09.6")
def cached_rows(worker: Worker, tiny: ReferenceModel) -> None:
    """The cache holds each sequence's keys and values at their positions, and none changes when others are added."""
    names = ("plain_text", "unusual_bytes", "seventeen_tokens")
    first, second, third = (tiny.reference(name).ids.tolist() for name in names)
    model = CachedModel(worker, tiny.folder, tiny.config, 3, 80)
    model.prefill(first[:20], 2)
    model.prefill(second[:3], 0)
    before = read_rows(model.cache, 3, 2, 20)
    for i in range(4):
        model.decode(first[20 + i], 2)
        model.decode(second[3 + i], 0)
    model.prefill(third, 1)
    expect_stored(model, tiny.oracle, first[:24], 2)
    expect_stored(model, tiny.oracle, second[:7], 0)
    after = read_rows(model.cache, 3, 2, 24)
    same = all((old == new[:20]).all() for old, new in zip(before, after, strict=True))
    require(same, "Rows of the cache changed after their tokens had been stored.")
    model.prefill(third[:5], 2)
    expect_stored(model, tiny.oracle, third[:5], 2)
    expect_stored(model, tiny.oracle, third, 1)


@check("s09.7")
def limits(worker: Worker, tiny: ReferenceModel) -> None:
    """A cache takes max_length tokens and no more, wrong calls are refused, and what is refused changes nothing."""
    prompt = tiny.reference("seventeen_tokens")
    ids = prompt.ids.tolist()
    model = CachedModel(worker, tiny.folder, tiny.config, 2, 17)
    expect_walk(model, prompt, 14, 16)
    wrong_prompts = [[], [tiny.config.vocab_size], [7, -1]]
    for call, error in (
        *((partial(model.prefill, wrong), "ValueError") for wrong in wrong_prompts),
        *((partial(model.prefill, ids, sequence), "ValueError") for sequence in (2, -1)),
        *((partial(model.decode, token), "ValueError") for token in (-1, tiny.config.vocab_size)),
        *((partial(model.decode, 5, sequence), "ValueError") for sequence in (1, 2, -1)),
        (partial(model.prefill, [*ids, 5]), "RequestTooLong"),
        *((partial(model.cache.call, "extend", counts), "ValueError") for counts in ({2: 1}, {1: 1, -1: 1})),
        (partial(model.cache.call, "extend", {1: 1, 0: 2}), "RequestTooLong"),
    ):
        expect_error(call, error)
    for sequence, length in ((0, 16), (1, 0)):
        require(model.cache.length(sequence) == length, f"A refused call changed sequence {sequence}.")
    last = model.decode(ids[16])[None]
    expect_rows(last, prompt.float32.logits[16:], prompt.bf16.logits[16:])
    expect_error(partial(model.decode, 5), "RequestTooLong")
    expect_stored(model, tiny.oracle, ids, 0)
    for sizes in ((0, 5), (1, 0), (1, tiny.config.max_position_embeddings + 1)):
        expect_error(partial(Cache, worker, tiny.config, *sizes), "ValueError")


@check("s09.10")
def constant_work(emulator: Worker, tiny: ReferenceModel, expect_band: Band) -> None:
    """decode launches as much for a long context as for a short one, and multiplies the weights by one row."""
    ids, config = long_ids(tiny), tiny.config
    model = CachedModel(emulator, tiny.folder, config, 1, len(ids))
    seen = {}
    for context in (2, 64, len(ids)):
        model.prefill(ids[: context - 1])
        seen[context] = watch(emulator, partial(model.decode, ids[context - 1]))
    for context, observed in seen.items():
        expect_no_more(f"decode at a context of {context}", observed, "A context of 2", seen[2])
        expect_products(f"decode at a context of {context}", observed, config, 1, 1)
    expect_band("s09", 0.25)


@check("s09.11")
def bytes_of_a_step(emulator: Worker, tiny: ReferenceModel, expect_band: Band) -> None:
    """decode reads the keys and values of its context once per query head, and copies none of them."""
    ids = long_ids(tiny)
    model = CachedModel(emulator, tiny.folder, tiny.config, 1, len(ids))
    seen = {}
    for context in (64, 300):
        model.prefill(ids[: context - 1])
        seen[context] = watch(emulator, partial(model.decode, ids[context - 1]), counted=True)
    expect_decode_bytes(tiny.config, seen)
    expect_band("s09", 0.5)


def long_ids(tiny: ReferenceModel) -> list[int]:
    ids: list[int] = tiny.reference("long_text").ids.tolist()
    return ids
