"""Stage 13, second part: whom the scheduler lets in and lets wait, and how many steps it needs."""

from functools import partial
from pathlib import Path

from given.requests import SamplingParams
from numpy.random import Generator

from grader.checking.api import Band, Worker, check, expect_error, require
from grader.checks.serving import expect_budget, expect_lean, expect_stats, greedy, new_llm, serve_exactly
from grader.checks.shared_passes import serve_in_passes
from grader.oracle.scripted import scripted_model
from grader.throughput import expect_fair, expect_no_starvation
from grader.trace import Request, skewed_trace

SLOTS = 4
BUDGET = 32


@check("s13.5")
def refused(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """A request that can never fit is refused at once, and those behind it are served; one that just fits is served."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=2, max_model_len=48, max_num_batched_tokens=16)
    nothing = SamplingParams(max_tokens=5)
    trace = [greedy(f"r{i}", model.prompt(rng, length), 6) for i, length in enumerate((5, 20, 3))]
    for length, arrival in ((48, 0), (49, 2), (200, 3)):
        too_long = Request(
            f"{length} tokens", tuple(model.prompt(rng, length)), nothing, 0, arrival, None, "RequestTooLong"
        )
        trace += [too_long, greedy(f"behind {length}", model.prompt(rng, 9), 4, arrival=arrival)]
    trace.append(greedy("fits", model.prompt(rng, 47), 1, arrival=4))
    serve_exactly(worker, llm, trace, model)


@check("s13.6")
def aborts(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """abort ends a waiting or a running request at once and no other; an unknown one is UnknownRequest."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=2, max_model_len=64)
    abort = partial(worker.call, llm.method("abort"))
    expect_error(partial(abort, "nobody"), "UnknownRequest")
    aborted = {0: 1, 2: 0, 3: 3, 6: 0, 7: 0}  # after so many tokens; 2, 6 and 7 wait for one of the two slots
    for _ in range(2):  # the ids of ended requests are free again
        trace = [greedy(f"r{i}", model.prompt(rng, 3 + i), 10, abort_after=aborted.get(i)) for i in range(9)]
        seen = serve_exactly(worker, llm, trace, model)
        for index in aborted:
            expect_error(partial(abort, f"r{index}"), "UnknownRequest")
        require(not seen.tokens["r7"], f"r7 was aborted while it waited, and got {len(seen.tokens['r7'])} tokens.")
    expect_error(partial(abort, "r1"), "UnknownRequest")
    expect_stats(worker, llm, running=0, waiting=0)


@check("s13.9")
def skewed_lengths(emulator: Worker, rng: Generator, shared_folder: Path, expect_band: Band) -> None:
    """With a few long answers among short ones no slot stays empty: far fewer steps than static batching needs."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(emulator, model.folder, max_num_seqs=SLOTS, max_model_len=128)
    for requests in (24, 40):
        trace = skewed_trace(rng, model, requests=requests, max_num_seqs=SLOTS)
        serve = partial(serve_exactly, trace=trace, model=model)
        expect_lean(serve_in_passes(emulator, llm, model.config, serve), trace, SLOTS)
    expect_band("s13", 0.25)


@check("s13.10")
def arrivals(emulator: Worker, rng: Generator, shared_folder: Path, expect_band: Band) -> None:
    """Requests that arrive while others run join them in the next step, as far as slots and token budget allow."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(emulator, model.folder, max_num_seqs=SLOTS, max_model_len=128, max_num_batched_tokens=BUDGET)
    for last_arrival in (0, 40):
        trace = skewed_trace(rng, model, max_num_seqs=SLOTS, last_arrival=last_arrival, token_budget=BUDGET)
        seen = serve_in_passes(emulator, llm, model.config, partial(serve_exactly, trace=trace, model=model))
        expect_budget(seen, trace, BUDGET)
        expect_lean(seen, trace, SLOTS, BUDGET)
    expect_band("s13", 0.5)


@check("s13.11")
def fairness(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """However many requests arrive, none waits over 4 steps for its next token, and nobody is passed over for long."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=SLOTS, max_model_len=128, max_num_batched_tokens=BUDGET)
    crowd = [
        (int(rng.integers(1, 24)), 1 + 2 * int(rng.integers(8) == 0), step) for step in range(40) for _ in range(2)
    ]
    crowd[3:3] = [(24, 50, 1), (60, 6, 1)]  # a long answer, and a prompt beyond the budget, come early
    trace = [greedy(f"r{i}", model.prompt(rng, n), m, arrival=at) for i, (n, m, at) in enumerate(crowd)]
    seen = serve_exactly(worker, llm, trace, model)
    expect_no_starvation(seen)
    expect_fair(seen, SLOTS)
    expect_budget(seen, trace, BUDGET)
