"""Stage 16, first part: the engine on paged memory gives right answers, also where memory is short, and loses none."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from given.requests import SamplingParams
from numpy.random import Generator

from grader.checking.api import Worker, check, expect_error, require
from grader.checks.pool_use import expect_pool_held
from grader.checks.serving import excerpt, expect_stats, greedy, new_llm, serve_as, serve_exactly, serve_greedily
from grader.oracle.references import ReferenceModel
from grader.oracle.scripted import scripted_model
from grader.throughput import drive, expect_running
from grader.trace import Request

FLAT: Mapping[str, Any] = {"temperature": 1e5, "ignore_eos": True}
"""Each of the scripted model's 1,024 tokens is as probable as any other."""
SMALL = {"max_num_seqs": 4, "max_model_len": 128, "num_blocks": 10}
"""Four requests of 60 tokens or more do not fit into these 160 tokens: some must be preempted."""
LARGE = {**SMALL, "num_blocks": 64}


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
    trace = [Request(f"seed {p.seed}", tuple(model.prompt(rng, 9)), p, p.max_tokens) for p in params]
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
        params = SamplingParams(max_tokens=1)
        too_large = Request("too large", tuple(model.prompt(rng, length)), params, 0, 2, error="RequestTooLong")
        trace = [
            greedy(f"r{i}", model.prompt(rng, 1 + 4 * i), 60, abort_after=count)
            for i, count in enumerate((None, 45, 3, None, 0, 30, None, 1, 39))
        ]
        seen = serve_exactly(worker, llm, [*trace[:5], too_large, *_later(trace[5:], 2)], model)
        require(len(seen.aborted) == 6, f"{len(seen.aborted)} requests were aborted; 6 must be.")
        expect_error(partial(worker.call, llm.method("abort"), "r1"), "UnknownRequest")
        expect_stats(worker, llm, running=0, waiting=0, free_blocks=8, total_blocks=8)
        serve_exactly(worker, llm, [whole], model)
        seen = serve_exactly(worker, llm, short, model)
        expect_running(seen, 4, "max_num_seqs is 4 and each of these has one block: give back every sequence number")
    answer = drive(worker, llm, [greedy("full", model.prompt(rng, 120), 99)], 1024).answers["full"]
    require(len(answer[0]) == 8 and answer[1] == "length", f"A pool of 128 tokens was filled: {answer}.")


def _later(trace: list[Request], arrival: int) -> list[Request]:
    return [Request(r.id, r.prompt, r.params, r.tokens, arrival, r.abort_after) for r in trace]
