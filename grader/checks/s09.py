"""Stage 9: keys and values are kept, so that a further token costs the work of one token.

First the kernels, then prefill and decode of a model, and the cache that both share.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
from given.config import LlamaConfig
from numpy.random import Generator

from grader import oracle
from grader.checking.api import (
    Band,
    DeviceActivity,
    InOut,
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
from grader.checking.draws import Array, bf16, to_bf16
from grader.checks.support.attention import LONGEST, SPREAD, draw_decode, expect_decode, expect_decoded_in_model
from grader.checks.support.cached_model import (
    CachedModel,
    expect_decode_bytes,
    expect_no_more,
    expect_products,
    expect_stored,
    expect_walk,
)
from grader.checks.support.caches import Cache, Contents, empty_cache, read_rows
from grader.checks.support.parallelism import expect_parallel
from grader.oracle.llama import Reference
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


@check("s09.3")
def sequences_of_a_cache(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """KVCache keeps what each sequence was extended by, reads it back, attends to it, and forgets it when freed."""
    contents = Contents(Cache(worker, tiny.config, 3, 20), rng)
    steps = (({2: 5}, {2: 21}), ({0: 3, 2: 2, 1: 0}, {0: 1, 2: 16}), ({2: 12, 0: 1}, {1: 20, 2: 14}), ({2: 1}, {2: 2}))
    for counts, too_many in steps:
        contents.expect_room(counts)
        contents.expect_room(too_many)
        contents.extend(counts)
        contents.expect()
    for counts in ({2: 1}, {2: 0}, {1: 19}, {1: 20}, {1: 21}):
        contents.expect_room(counts)
    contents.free(2)
    contents.free(1)
    contents.extend({2: 7})
    contents.expect()


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


@check("s09.5")
@property_check(
    context_lens=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    heads_per_kv_head=st.integers(1, 4),
    num_kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 24, 64, 128]),
    slope_of_scores=st.sampled_from([0.0, 2.0, -2.0, 1e3]),
)
def property_of_caches(
    worker: Worker,
    rng: Generator,
    context_lens: list[int],
    heads_per_kv_head: int,
    num_kv_heads: int,
    head_dim: int,
    slope_of_scores: float,
) -> None:
    """What write_kv stores, decode_attention finds, for any heads and lengths, however scores rise, fall or differ."""
    slots, size = rng.permutation(4)[: len(context_lens)].astype(np.int32), max(context_lens) + 2
    rows = np.concatenate([slot * size + np.arange(length) for slot, length in zip(slots, context_lens, strict=True)])
    rows = rng.permutation(rows).astype(np.int32)
    k, v = (bf16(rng, len(rows), num_kv_heads, head_dim) for _ in range(2))
    k = to_bf16(k + slope_of_scores * (rows % size)[:, None, None] / head_dim)
    empty = empty_cache(4, size, num_kv_heads, head_dim)
    caches = expect_written(worker, empty, empty, k, v, rows)
    q = to_bf16(np.abs(bf16(rng, len(context_lens), heads_per_kv_head * num_kv_heads, head_dim, scale=SPREAD)))
    expect_decode(worker, OP, (q, *caches, slots, np.array(context_lens, np.int32)))


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
    for name, old, new in zip(("keys", "values"), before, read_rows(model.cache, 3, 2, 24), strict=True):
        changed = np.flatnonzero((old != new[:20]).any(axis=1))
        told = f"The {name} of slot 2 at the positions {changed.tolist()}, in layer 3, changed after they were stored"
        require(not changed.size, f"{told}, while tokens were added to the slots 0 to 2: write new rows only.")
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
    for called, call, error, because in refusals(model, ids):
        expect_error(call, error, called=called, because=because)
        model.cache.expect_lengths({0: 16, 1: 0}, f"{called} was refused")
    last = expect_success(partial(model.decode, ids[16]), "decode at position 16", "max_length is 17")[None]
    expect_rows(last, prompt.float32.logits[16:], prompt.bf16.logits[16:])
    because = "slot 0 has 17 tokens, as many as max_length"
    expect_error(partial(model.decode, 5), "RequestTooLong", called="decode at position 17", because=because)
    expect_stored(model, tiny.oracle, ids, 0)
    whole = expect_success(partial(model.prefill, ids, 1), "prefill of 17 tokens", "max_length is 17")[None]
    expect_rows(whole, prompt.float32.logits[16:], prompt.bf16.logits[16:])
    ends = [tiny.config.vocab_size - 1, 0]
    expect_success(partial(model.prefill, ends, 1), f"prefill({ends})", "the first and the last id are ids")
    expect_sizes(worker, tiny.config)


def refusals(model: CachedModel, ids: list[int]) -> list[tuple[str, Callable[[], object], str, str]]:
    """(text, call, error, reason) of calls that must be refused where sequence 0 of two has 16 tokens of 17."""
    vocab_size = model.config.vocab_size
    prompts = {
        (): "the prompt is empty",
        (vocab_size,): f"the ids are 0 to {vocab_size - 1}",
        (7, -1): "no id is below 0",
    }
    calls: list[tuple[str, Callable[[], object], str, str]] = [
        (f"prefill({list(wrong)})", partial(model.prefill, wrong), "ValueError", why) for wrong, why in prompts.items()
    ]
    for token in (-1, vocab_size):
        because = f"the ids are 0 to {vocab_size - 1}"
        calls.append((f"decode({token})", partial(model.decode, token), "ValueError", because))
    because = "slot 1 is empty: only a prefill begins one"
    calls.append(("decode in slot 1", partial(model.decode, 5, 1), "ValueError", because))
    for sequence in (2, -1):
        slots: dict[str, Any] = {"extend": {sequence: 1}, "can_extend": {1: 1, sequence: 1}, "restart": {sequence: 1}}
        slots |= {"length": sequence, "free": sequence, "tables": [0, sequence]}
        named = [(f"{method}({wrong})", partial(model.cache.call, method, wrong)) for method, wrong in slots.items()]
        named.append((f"read(0, {sequence})", partial(model.cache.call, "read", 0, sequence)))
        named.append((f"prefill in slot {sequence}", partial(model.prefill, ids, sequence)))
        named.append((f"decode in slot {sequence}", partial(model.decode, 5, sequence)))
        calls += [(name, call, "ValueError", "the slots are 0 and 1") for name, call in named]
    because = "max_length is 17"
    calls.append(("prefill of 18 tokens", partial(model.prefill, [*ids, 5]), "RequestTooLong", because))
    too_long = {1: 1, 0: 2}
    because = "slot 0 has 16 tokens, and max_length is 17"
    calls.append((f"extend({too_long})", partial(model.cache.call, "extend", too_long), "RequestTooLong", because))
    return calls


def expect_sizes(worker: Worker, config: LlamaConfig) -> None:
    """A cache has one sequence or more, of 1 token to as many as the model has positions."""
    short = replace(config, max_position_embeddings=20)
    because = "there is a slot at least, and max_length is 1 to max_position_embeddings, which is 20"
    for sizes in ((0, 5), (1, 0), (1, 21)):
        called = f"KVCache(config, {sizes[0]}, {sizes[1]})"
        expect_error(partial(Cache, worker, short, *sizes), "ValueError", called=called, because=because)
    for sizes in ((1, 1), (1, 20)):
        expect_success(partial(Cache, worker, short, *sizes), f"KVCache(config, {sizes[0]}, {sizes[1]})", because)


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


@check("s09.10")
def constant_work(emulator: Worker, tiny: ReferenceModel, expect_band: Band) -> None:
    """decode launches as much for a long context as for a short one, and multiplies the weights by one row."""
    ids, config = long_ids(tiny), tiny.config
    model = CachedModel(emulator, tiny.folder, config, 1, len(ids))
    seen = {context: counted_decode(model, tiny.reference("long_text"), context) for context in (2, 64, len(ids))}
    for context, observed in seen.items():
        expect_no_more(f"decode at a context of {context}", observed, "A context of 2", seen[2])
        expect_products(f"decode at a context of {context}", observed, config, 1, 1)
    expect_band("s09", 0.25)


@check("s09.11")
def bytes_of_a_step(emulator: Worker, tiny: ReferenceModel, expect_band: Band) -> None:
    """decode reads the keys and values of its context once per query head, and copies none of them."""
    ids = long_ids(tiny)
    model = CachedModel(emulator, tiny.folder, tiny.config, 1, len(ids))
    text = tiny.reference("long_text")
    seen = {context: counted_decode(model, text, context, instrumented=True) for context in (64, 300)}
    expect_decode_bytes(tiny.config, seen)
    expect_band("s09", 0.5)


def counted_decode(model: CachedModel, text: Reference, context: int, instrumented: bool = False) -> DeviceActivity:
    """What the device does in the decode of token context − 1 of the text; its logits are judged too."""
    model.prefill(text.ids[: context - 1].tolist())
    with model.worker.observe(instrumented) as seen:
        logits = model.decode(int(text.ids[context - 1]))
    row = slice(context - 1, context)
    expect_rows(logits[None], text.float32.logits[row], text.bf16.logits[row], f"the logits at a context of {context}")
    return seen


def long_ids(tiny: ReferenceModel) -> list[int]:
    ids: list[int] = tiny.reference("long_text").ids.tolist()
    return ids
