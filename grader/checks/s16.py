"""Stage 16: the engine on paged memory gives right answers, also where memory is short, and loses none.

Then what it makes of its memory, and what a decode step costs.
"""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from given.requests import SamplingParams
from numpy.random import Generator

from grader.checking.api import Band, Handle, Worker, check, expect_error, expect_success, require
from grader.checks.support.llm import excerpt, expect_stats, greedy, new_llm, serve_as, serve_exactly, serve_greedily
from grader.checks.support.s16 import (
    CAP_ROWS,
    KV_ROWS,
    MODEL_LEN,
    activation_bytes,
    crowded_trace,
    decode_work,
    device_cap,
    kv_bytes,
    linear_bytes,
    live_bytes,
)
from grader.checks.support.shared_passes import serve_in_passes
from grader.oracle.references import ReferenceModel
from grader.oracle.scripted import ScriptedModel, scripted_model
from grader.traces.drive import (
    TraceRun,
    drive,
    expect_at_most,
    expect_decode_steps,
    expect_other_steps,
    expect_running,
    expect_slots,
)
from grader.traces.trace import Trace, TraceRequest, kv_bytes_per_token

FLAT: Mapping[str, Any] = {"temperature": 1e5, "ignore_eos": True}
"""Each of the scripted model's 1,024 tokens is as probable as any other."""
SMALL = {"max_num_seqs": 4, "max_model_len": 128, "num_blocks": 10}
"""Four requests of 60 tokens or more do not fit into these 160 tokens: some must be preempted."""
LARGE = {**SMALL, "num_blocks": 64}
SLOTS = 2 * CAP_ROWS + 2


def expect_pool_held(seen: TraceRun, trace: Trace, num_blocks: int, block_size: int = 16) -> None:
    """At no time did the requests that went on need more blocks than there are.

    A request that gets a token in two steps in a row holds its prompt and its tokens but the newest between them.
    Those that end or pause are not counted, since they may give their blocks back within the step.
    """
    stored = {request.id: len(request.prompt) - 1 for request in trace}
    for number, (outputs, following) in enumerate(pairwise(seen.steps)):
        for name in outputs:
            stored[name] += 1
        going_on = [name for name in outputs if name in following]
        held = sum(-(-stored[name] // block_size) for name in going_on)
        told = (
            f"After step {number} {len(going_on)} requests went on, which hold {held} blocks of {block_size} tokens at "
            f"least; the pool has {num_blocks}. Where room is missing a request must be preempted, not memory added."
        )
        require(held <= num_blocks, told)


@check("s16.1")
def growth(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """Requests grow from block to block, whether their prompt ends before, at or behind the end of one."""
    llm = new_llm(worker, tiny.folder, max_num_seqs=3, max_model_len=160, num_blocks=30)
    prompts = (15, 33, 16, 31, 17, 32)
    trace = [greedy(f"r{length}", excerpt(rng, tiny, length), 125 - length) for length in prompts]
    serve_greedily(worker, llm, trace, tiny)
    expect_stats(worker, llm, running=0, waiting=0, free_blocks=30, total_blocks=30)


@check("s16.2")
def short_of_blocks(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """In a pool too small for all that run, every request gets the same tokens as in a large one, and gets on."""
    model = scripted_model(rng, shared_folder)
    lengths = [(int(rng.integers(1, 40)), int(rng.integers(30, 80))) for _ in range(10)]
    trace = [greedy(f"r{i}", model.prompt(rng, n), tokens) for i, (n, tokens) in enumerate(lengths)]
    for options in (LARGE, SMALL, {**SMALL, "num_blocks": 40, "block_size": 4}):
        llm = new_llm(worker, model.folder, **options)
        seen = serve_exactly(worker, llm, trace, model)
        expect_pool_held(seen, trace, options["num_blocks"], options.get("block_size", 16))
        expect_stats(worker, llm, free_blocks=options["num_blocks"], total_blocks=options["num_blocks"])


@check("s16.3")
def recomputed(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """A preempted request goes on as the stored model's reference does, after its prompt and all tokens it had."""
    llm = new_llm(worker, tiny.folder, max_num_seqs=4, max_model_len=256, num_blocks=17)
    lengths = ((60, 80), (33, 90), (48, 100), (17, 110), (64, 40), (5, 100))
    trace = [greedy(f"r{i}", excerpt(rng, tiny, length), tokens) for i, (length, tokens) in enumerate(lengths)]
    serve_greedily(worker, llm, trace, tiny)


@check("s16.4")
def drawn_tokens(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """A seed gives a request the same tokens whether or not it is preempted."""
    model = scripted_model(rng, shared_folder)
    first = int(rng.integers(2**31))
    params = [SamplingParams(seed=first + i, max_tokens=40 + 5 * i, **FLAT) for i in range(7)]
    trace = [TraceRequest(f"seed {p.seed}", tuple(model.prompt(rng, 9)), p, p.max_tokens) for p in params]
    right = drive(worker, new_llm(worker, model.folder, **LARGE), trace, 1024).answers
    serve_as(worker, new_llm(worker, model.folder, **SMALL), trace, right, 1024)


@check("s16.5")
def nothing_is_lost(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """After aborts, refusals and preemptions all blocks are free, and a request as large as the pool is served."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=4, max_model_len=512, num_blocks=8)
    expect_stats(worker, llm, running=0, waiting=0, free_blocks=8, total_blocks=8)
    for count in (None, 3):  # one that ends, then one that is aborted
        serve_exactly(worker, llm, [greedy("alone", model.prompt(rng, 20), 5, abort_after=count)], model)
        expect_stats(worker, llm, running=0, waiting=0, free_blocks=8, total_blocks=8)
    whole = greedy("whole", model.prompt(rng, 100), 28)
    short = [greedy(f"short {i}", model.prompt(rng, 3), 12) for i in range(6)]
    for length in (128, 129, 400):
        params, because = SamplingParams(max_tokens=1), "the pool has 128 tokens, so no new token has room"
        prompt = tuple(model.prompt(rng, length))
        too_large = TraceRequest("too large", prompt, params, 0, 2, error="RequestTooLong", because=because)
        trace = [
            greedy(f"r{i}", model.prompt(rng, 1 + 4 * i), 60, abort_after=count)
            for i, count in enumerate((None, 45, 3, None, 0, 30, None, 1, 39))
        ]
        seen = serve_exactly(worker, llm, [*trace[:5], too_large, *_later(trace[5:], 2)], model)
        told = f"{len(seen.aborted)} requests ran until they were aborted; 6 must, since their answers have 60 tokens."
        require(len(seen.aborted) == 6, told)
        abort = partial(worker.call, llm.method("abort"), "r1")
        expect_error(abort, "UnknownRequest", called='abort("r1")', because="it was aborted already")
        expect_stats(worker, llm, running=0, waiting=0, free_blocks=8, total_blocks=8)
        serve_exactly(worker, llm, [whole], model)
        seen = serve_exactly(worker, llm, short, model)
        expect_running(seen, 4, "max_num_seqs is 4 and each of these has one block: give back every sequence number")
    for length in (120, 127):
        answer = drive(worker, llm, [greedy("full", model.prompt(rng, length), 99)], 1024).answers["full"]
        told = (
            f'A prompt of {length} tokens got {len(answer[0])} new ones ("{answer[1]}") of max_tokens = 99; it must get'
        )
        right = len(answer[0]) == 128 - length and answer[1] == "length"
        require(right, f'{told} {128 - length} ("length"), which fill the pool of 128.')
    expect_cache_limits(worker, model)
    expect_pool_sizes(worker, rng, model)


def expect_cache_limits(worker: Worker, model: ScriptedModel) -> None:
    """PagedKVCache takes max_length tokens of a slot, and all of its blocks, and no more."""
    cache = worker.call("paged_kv_cache.PagedKVCache", model.config, 4, 4, 3, 10, keep=True)
    lengths = {0: 0, 1: 0, 2: 0}
    for counts, too_many, error, because in (
        ({0: 0}, {0: 11}, "RequestTooLong", "max_length is 10"),
        ({0: 10}, {0: 1}, "RequestTooLong", "slot 0 has 10 tokens, as many as max_length"),
        ({1: 0}, {1: 5}, "OutOfBlocks", "slot 0 has 3 of the 4 blocks, and a block holds 4 tokens"),
        ({1: 4}, {2: 1}, "OutOfBlocks", "slot 0 has 3 of the 4 blocks and slot 1 the last one"),
    ):
        state = f"in a PagedKVCache of 4 blocks of 4 tokens with max_length 10 and the lengths {lengths}"
        _expect_room(worker, cache, counts, True, state)
        extend = partial(worker.call, cache.method("extend"), counts)
        expect_success(extend, f"extend({counts}) {state}", "there is room")
        lengths |= {slot: lengths[slot] + count for slot, count in counts.items()}
        state = f"in a PagedKVCache of 4 blocks of 4 tokens with max_length 10 and the lengths {lengths}"
        _expect_room(worker, cache, too_many, False, state)
        extend = partial(worker.call, cache.method("extend"), too_many)
        expect_error(extend, error, called=f"extend({too_many}) {state}", because=because)
        for slot, length in lengths.items():
            got = worker.call(cache.method("length"), slot)
            told = f"After extend({too_many}) was refused length({slot}) is {got}; it must be {length}."
            require(got == length, told, hint="Refuse first, change afterwards.")


def _expect_room(worker: Worker, cache: Handle, counts: dict[int, int], room: bool, state: str) -> None:
    got = worker.call(cache.method("can_extend"), counts)
    right = isinstance(got, bool | np.bool_) and got == room
    require(right, f"can_extend({counts}) is {got!r:.60} {state}; it must be {room}.")


def expect_pool_sizes(worker: Worker, rng: Generator, model: ScriptedModel) -> None:
    """A pool has a block or more; its size in bytes is rounded down to whole blocks, and one block serves 16 tokens."""
    block = 16 * kv_bytes_per_token(model.config)
    make = partial(new_llm, worker, model.folder, max_num_seqs=2, max_model_len=64)
    for options, because in (
        ({"num_blocks": 0}, "a pool has one block at least"),
        ({"block_size": 0}, "a block holds one token at least"),
        ({"kv_memory_bytes": 0}, "a pool has one block at least"),
        ({"kv_memory_bytes": block - 1}, f"one block of this model takes {block} bytes"),
        ({"num_blocks": 4, "kv_memory_bytes": 4 * block}, "the size of the pool is given twice"),
    ):
        expect_error(partial(make, **options), "ValueError", called=f"LLM(…, {options})", because=because)
    for memory, blocks in ((block, 1), (2 * block - 1, 1), (2 * block, 2)):
        llm = expect_success(
            partial(make, kv_memory_bytes=memory), f"LLM(…, kv_memory_bytes={memory})", f"a block takes {block} bytes"
        )
        expect_stats(worker, llm, total_blocks=blocks, free_blocks=blocks)
    trace = [greedy(f"{length} tokens", model.prompt(rng, length), 32 - length) for length in (31, 30, 16, 17)]
    serve_exactly(worker, llm, trace, model)


def _later(trace: list[TraceRequest], arrival: int) -> list[TraceRequest]:
    return [TraceRequest(r.id, r.prompt, r.params, r.tokens, arrival, r.abort_after) for r in trace]


@check("s16.6")
def at_once(emulator: Worker, rng: Generator, shared_folder: Path) -> None:
    """Under one cap of device memory twice as many requests run at once as contiguous rows would allow."""
    model = scripted_model(rng, shared_folder)
    emulator.end()  # the cap counts all memory: nothing of an earlier check may be left
    emulator.limit_memory(device_cap(model))
    limits = {"max_num_seqs": SLOTS, "max_model_len": MODEL_LEN, "max_num_batched_tokens": MODEL_LEN}
    llm = new_llm(emulator, model.folder, kv_memory_bytes=kv_bytes(model), **limits)
    trace = crowded_trace(rng, model, 3 * SLOTS)
    seen = serve_in_passes(emulator, llm, model.config, partial(serve_exactly, trace=trace, model=model))
    expect_running(seen, 2 * CAP_ROWS, f"memory suffices for {CAP_ROWS} contiguous rows of {MODEL_LEN} tokens")
    expect_decode_steps(seen, trace, 2 * CAP_ROWS, MODEL_LEN)


@check("s16.7")
def bytes_of_a_step(emulator: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """A decode step reads each key and value where it lies, and each weight once; it copies none of them."""
    group = tiny.config.num_heads / tiny.config.num_kv_heads
    in_place = "Attention must read the keys and values in their blocks: do not copy them together first."
    works = []
    for context in (64, 512):
        work = decode_work(emulator, tiny, [_ids(rng, tiny, context) for _ in range(2)], counted=True)
        live, told = live_bytes(tiny, work), f"With contexts of {work.context} tokens, bytes that a decode step"
        written = 0.25 * live + 2 * activation_bytes(tiny, work)
        expect_at_most(f"{told} writes", work.written, written, in_place)
        read = 1.1 * (linear_bytes(tiny) + group * live)
        once = "Only the new token of each request is computed, and each weight is read once for all of them."
        expect_at_most(f"{told} reads", work.loaded + work.products, read, once)
        works.append(work)
    short, long = works
    grown = live_bytes(tiny, long) - live_bytes(tiny, short)
    told = f"From contexts of {short.context} tokens to {long.context}, bytes that a decode step"
    expect_at_most(f"{told} writes more", long.written - short.written, 0.25 * grown, in_place)
    expect_at_most(
        f"{told} reads more", long.loaded - short.loaded, 1.1 * group * grown, "Read each key once per head."
    )


@check("s16.8")
def calls_of_a_step(emulator: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """A decode step of 8 requests makes hardly more launches and copies than one of a single request."""
    alone, together = (decode_work(emulator, tiny, [_ids(rng, tiny, 40) for _ in range(count)]) for count in (1, 8))
    advice = "One launch serves all rows of the batch."
    more = f"{advice} {together.more_calls_than(alone)}"
    expect_at_most("Launches, products and copies of a step of 8 requests", together.calls, alone.calls + 2, more)
    told = "Bytes of weights in the matrix products of a step of 8 requests"
    expect_at_most(told, together.products, 1.01 * linear_bytes(tiny), advice)


@check("s16.9")
def crowded(emulator: Worker, rng: Generator, shared_folder: Path, expect_band: Band) -> None:
    """A long trace takes hardly more steps than with twice the slots that contiguous rows would allow."""
    model = scripted_model(rng, shared_folder)
    options = {"max_num_seqs": 4 * KV_ROWS, "max_model_len": MODEL_LEN}
    llm = new_llm(emulator, model.folder, kv_memory_bytes=kv_bytes(model), **options)
    trace = crowded_trace(rng, model, 80)
    seen = serve_in_passes(emulator, llm, model.config, partial(serve_exactly, trace=trace, model=model))
    expect_decode_steps(seen, trace, 2 * KV_ROWS)
    expect_other_steps(seen)
    expect_band("s16", 0.25)


@check("s16.10")
def under_pressure(emulator: Worker, rng: Generator, shared_folder: Path, expect_band: Band) -> None:
    """Preemptions cost less than they bring: the steps are far fewer than with contiguous rows in that memory."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(emulator, model.folder, max_num_seqs=8, max_model_len=128, num_blocks=16)
    trace = [greedy(f"r{i}", model.prompt(rng, 1 + i % 30), int(rng.integers(20, 60))) for i in range(24)]
    seen = serve_in_passes(emulator, llm, model.config, partial(serve_exactly, trace=trace, model=model))
    expect_slots(seen, 8)
    expect_pool_held(seen, trace, 16)
    expect_decode_steps(seen, trace, 3)
    expect_other_steps(seen)
    expect_band("s16", 0.5)


def _ids(rng: Generator, tiny: ReferenceModel, length: int) -> list[int]:
    return [int(token) for token in rng.integers(tiny.config.vocab_size, size=length)]
