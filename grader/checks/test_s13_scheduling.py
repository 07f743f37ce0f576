"""Stage 13, second part: how many steps the scheduler needs, and whom it lets wait."""

from pathlib import Path

from numpy.random import Generator

from grader.checking import Worker, check
from grader.checks.serving import expect_budget, expect_lean, greedy, new_llm, serve_exactly
from grader.oracle.scripted import scripted_model
from grader.throughput import expect_fair, expect_no_starvation
from grader.trace import skewed_trace

SLOTS = 4
BUDGET = 32


@check("s13.9")
def skewed_lengths(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """With a few long answers among short ones no slot stays empty: far fewer steps than static batching needs."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=SLOTS, max_model_len=128)
    for requests in (24, 40):
        trace = skewed_trace(rng, model, requests=requests, max_num_seqs=SLOTS)
        expect_lean(serve_exactly(worker, llm, trace, model), trace, SLOTS)


@check("s13.10")
def arrivals(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """Requests that arrive while others run join them in the next step, as far as slots and token budget allow."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=SLOTS, max_model_len=128, max_num_batched_tokens=BUDGET)
    for last_arrival in (0, 40):
        trace = skewed_trace(rng, model, max_num_seqs=SLOTS, last_arrival=last_arrival, token_budget=BUDGET)
        seen = serve_exactly(worker, llm, trace, model)
        expect_budget(seen, trace, BUDGET)
        expect_lean(seen, trace, SLOTS, BUDGET)


@check("s13.11")
def fairness(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """However many requests arrive, a running one waits at most 4 steps for a token, and none is passed over for long."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=SLOTS, max_model_len=128, max_num_batched_tokens=BUDGET)
    crowd = [(rng.integers(1, 24), rng.integers(1, 4), step) for step in range(40) for _ in range(2)]
    crowd[3:3] = [(24, 50, 1), (60, 6, 1)]  # a long answer, and a prompt beyond the budget, come early
    trace = [greedy(f"r{i}", model.prompt(rng, int(n)), int(m), arrival=at) for i, (n, m, at) in enumerate(crowd)]
    seen = serve_exactly(worker, llm, trace, model)
    expect_no_starvation(seen)
    expect_fair(seen, SLOTS)
    expect_budget(seen, trace, BUDGET)
