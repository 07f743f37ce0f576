"""Calls of a submission's LLM, and how what it serves is judged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from given.requests import SamplingParams
from numpy.random import Generator

from grader.checking.api import Failure, Handle, Worker, require
from grader.oracle.references import ReferenceModel
from grader.oracle.scripted import ScriptedModel
from grader.oracle.streams import expect_stream, expect_streams
from grader.traces.answers import Answer, after_pause, expect_answers, expect_tokens
from grader.traces.drive import (
    Caller,
    TraceRun,
    drive,
    expect_decode_steps,
    expect_lengths,
    expect_other_steps,
    expect_running,
    expect_slots,
)
from grader.traces.trace import Trace, TraceRequest, scripted_answers


def new_llm(worker: Worker, folder: Path, **options: int) -> Handle:
    """An LLM of the submission for the model of this folder."""
    return worker.call("llm.LLM", str(folder), keywords=options, keep=True)


def greedy(name: str, prompt: Sequence[int], tokens: int, **fields: Any) -> TraceRequest:
    """A request for exactly `tokens` tokens, each the most probable; fields are a request's."""
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    return TraceRequest(name, tuple(prompt), params, tokens, **fields)


def ending(name: str, prompt: Sequence[int], tokens: int, most: int = 100) -> TraceRequest:
    """A request that gets `tokens` tokens, the last of them an end-of-sequence token; max_tokens is `most`."""
    return TraceRequest(name, tuple(prompt), SamplingParams(temperature=0.0, max_tokens=most), tokens)


def serve_exactly(worker: Caller, llm: Handle, trace: Trace, model: ScriptedModel) -> TraceRun:
    """Run a trace on the scripted model; Failure unless every answer is exactly the right one."""
    return serve_as(worker, llm, trace, scripted_answers(trace, model), model.config.vocab_size)


def serve_as(worker: Caller, llm: Handle, trace: Trace, want: Mapping[str, Answer], vocab_size: int) -> TraceRun:
    """Run a trace; Failure unless every request of `want` got exactly this answer."""
    seen = drive(worker, llm, trace, vocab_size, lambda seen: expect_tokens(seen.tokens, want, seen.received))
    expect_answers(seen.answers, want, seen.received)
    return seen


def serve_greedily(worker: Caller, llm: Handle, trace: Trace, tiny: ReferenceModel) -> TraceRun:
    """Run a trace on the stored model and judge every answer by its reference, token after token."""

    def judge(seen: TraceRun) -> None:
        for request in trace:
            if tokens := seen.tokens.get(request.id):
                more = partial(after_pause, request.id, received=seen.received)
                expect_stream(tiny.oracle, request.prompt, tokens, f'the answer to "{request.id}"', more)

    seen = drive(worker, llm, trace, tiny.config.vocab_size, judge)
    try:
        expect_lengths(seen, trace)
        served = {r.id: (r.prompt, seen.tokens[r.id]) for r in trace if r.id in seen.reasons}
        expect_streams(tiny.oracle, served)
    except Failure:
        judge(seen)
        raise
    return seen


def excerpt(rng: Generator, tiny: ReferenceModel, length: int) -> list[int]:
    """This many tokens in a row of the stored prompts, written one after the other."""
    ids = np.concatenate([prompt.ids for prompt in tiny.references])
    start = int(rng.integers(len(ids) - length + 1))
    return [int(token) for token in ids[start : start + length]]


@dataclass
class Meddler:
    """A Caller for `drive` that makes one further call after each step, as long as there are any."""

    worker: Worker
    calls: Iterator[Callable[[], None]]

    def call(self, target: Any, *arguments: Any) -> Any:
        result = self.worker.call(target, *arguments)
        if target[1] == "step":
            next(self.calls, lambda: None)()
        return result


def expect_budget(seen: TraceRun, trace: Trace, budget: int) -> None:
    """No step computes more than `budget` tokens, prompts and one for each decode, unless for a single prompt."""
    prompts = {request.id: len(request.prompt) for request in trace}
    for number, outputs in enumerate(seen.steps):
        new = [prompts[name] for name in outputs if seen.received[name][0] == number]
        total = sum(new) + len(outputs) - len(new)
        if len(new) > 1 and total > budget:
            told = f"Step {number} computed {total} tokens, {len(new)} prompts of {new} tokens among them"
            raise Failure("INCORRECT_VALUE", f"{told}; max_num_batched_tokens is {budget}.")


def expect_lean(seen: TraceRun, trace: Trace, slots: int, budget: int | None = None) -> None:
    """The trace took hardly more steps than any sane order of admission needs, and used all slots."""
    expect_slots(seen, slots)
    expect_running(seen, slots, f"max_num_seqs is {slots} and more requests wait")
    expect_decode_steps(seen, trace, slots, budget)
    expect_other_steps(seen)


IDLE = {
    "running": "no request is left that runs",
    "waiting": "no request is left that waits",
    "free_blocks": "no request is left, so every block must have come back, at an end, an abort or a preemption",
    "total_blocks": "that is the size of the pool",
}
"""Why a count of stats() is what it is where no request is left."""


def expect_stats(worker: Worker, llm: Handle, **want: int) -> dict[str, int]:
    """Some counts of stats(), which must all be there, of an engine that has no request."""
    stats = worker.call(llm.method("stats"))
    names = ("running", "waiting", "preemptions", "steps", "free_blocks", "total_blocks")
    right = isinstance(stats, dict) and all(type(stats.get(name)) is int for name in names)
    require(right, f"stats() must return a dict of whole numbers with the keys {', '.join(names)}.", "INCORRECT_DTYPE")
    for name, value in want.items():
        told = f'stats()["{name}"] is {stats[name]}; it must be {value}'
        require(stats[name] == value, f"{told}: {IDLE[name]}.")
    return dict(stats)
