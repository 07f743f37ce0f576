"""Stage 16, second part: what the engine makes of its memory, and what a decode step costs."""

from functools import partial
from pathlib import Path

from numpy.random import Generator

from grader.checking.api import Band, Worker, check
from grader.checks.engine_work import activation_bytes, decode_work, linear_bytes, live_bytes
from grader.checks.memory_cap import CAP_ROWS, KV_ROWS, MODEL_LEN, crowded_trace, device_cap, kv_bytes
from grader.checks.pool_use import expect_pool_held
from grader.checks.serving import greedy, new_llm, serve_exactly
from grader.checks.shared_passes import serve_in_passes
from grader.oracle.references import ReferenceModel
from grader.oracle.scripted import scripted_model
from grader.throughput import expect_at_most, expect_decode_steps, expect_other_steps, expect_running

SLOTS = 2 * CAP_ROWS + 2


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
    expect_at_most("Launches, products and copies of a step of 8 requests", together.calls, alone.calls + 2, advice)
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
    expect_pool_held(seen, trace, 16)
    expect_decode_steps(seen, trace, 3)
    expect_other_steps(seen)
    expect_band("s16", 0.5)


def _ids(rng: Generator, tiny: ReferenceModel, length: int) -> list[int]:
    return [int(token) for token in rng.integers(tiny.config.vocab_size, size=length)]
