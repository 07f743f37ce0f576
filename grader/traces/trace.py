"""Traces of requests, and what a sane engine needs for one: bounds that depend on the trace alone.

A *decode step* is a step in which a request that already had a token gets one. `decode_steps` counts those of
continuous batching in one order of admission: a slot that a request leaves is taken in the next step, and the prefill
of the newcomers shares the step with the decodes of the others. An engine that prefills in steps of its own needs no
more of them, since a request then spends one decode step less in its slot. Which order is best depends on the trace,
and no engine can know it; so an engine is held against the worst of four orders, `allowed_decode_steps`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from given.config import LlamaConfig
from given.requests import SamplingParams
from numpy.random import Generator

from grader.oracle.scripted import ScriptedModel

SLACK = 1.05
"""An engine may need this many times the decode steps of the worst order."""
STATIC_FACTOR = 1.5
"""Static batching needs at least this many times what is allowed on a drawn trace."""
BF16_BYTES = 2
OTHER_ORDERS = 16
"""On a drawn trace none of these random orders is worse than the worst that bounds the steps."""
TRIES = 200


@dataclass(frozen=True)
class TraceRequest:
    """One request of a trace."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    tokens: int
    """How many new tokens it gets: by params.max_tokens, or by an end-of-sequence token before."""
    arrival: int = 0
    """It is added before the step of this number."""
    abort_after: int | None = None
    """It is aborted once it has this many tokens; 0: right after the first step since it was added."""
    error: str | None = None
    """The exception that add_request must raise for it; it then takes no further part."""
    because: str = ""
    """Why it must, as a clause."""


Trace = Sequence[TraceRequest]
"""In order of arrival."""

Order = Callable[[TraceRequest], float]
"""Of the waiting requests those with the least value are admitted first, among equals those that came first."""


def first_come(request: TraceRequest) -> int:
    return 0


def shortest_first(request: TraceRequest) -> int:
    return request.tokens


def longest_first(request: TraceRequest) -> int:
    return -request.tokens


def decode_steps(trace: Trace, order: Order, max_num_seqs: int, token_budget: int | None = None) -> int:
    """Decode steps of continuous batching with `max_num_seqs` slots.

    A step decodes all running requests and prefills as many of the waiting as slots and budget allow, at least one.
    The budget counts a prompt's tokens, and one for each decode.
    """
    coming = _served(trace)
    waiting: list[TraceRequest] = []
    running: dict[str, int] = {}  # the tokens that each will still get
    step = count = 0
    while coming or waiting or running:
        while coming and coming[0].arrival <= step:
            waiting.append(coming.pop(0))
        waiting.sort(key=order)
        count += bool(running)
        admitted = _admit(waiting, max_num_seqs - len(running), (token_budget or inf) - len(running))
        left = {name: tokens - 1 for name, tokens in running.items()} | {r.id: r.tokens - 1 for r in admitted}
        running = {name: tokens for name, tokens in left.items() if tokens}
        step += 1
    return count


def _served(trace: Trace) -> list[TraceRequest]:
    return [request for request in trace if request.error is None]


def _admit(waiting: list[TraceRequest], slots: int, budget: float) -> list[TraceRequest]:
    """Takes from the front of `waiting` what fits."""
    admitted: list[TraceRequest] = []
    while waiting and len(admitted) < slots and (not admitted or len(waiting[0].prompt) <= budget):
        budget -= len(waiting[0].prompt)
        admitted.append(waiting.pop(0))
    return admitted


def allowed_decode_steps(trace: Trace, max_num_seqs: int, token_budget: int | None = None) -> int:
    """SLACK times the worst of four orders.

    The fourth, the longest answer after all others and those from the longest on, is the worst that can happen when all
    requests are there from the beginning: the others fill all slots to the end, and then one slot alone is busy
    (R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969).
    """
    longest = max(_served(trace), key=lambda request: request.tokens)

    def longest_last(request: TraceRequest) -> float:
        return inf if request is longest else -request.tokens

    orders = (first_come, shortest_first, longest_first, longest_last)
    return int(SLACK * max(decode_steps(trace, order, max_num_seqs, token_budget) for order in orders))


def static_decode_steps(trace: Trace, max_num_seqs: int) -> int:
    """Decode steps of static batching: up to `max_num_seqs` waiting requests run together until the longest ends."""
    coming = _served(trace)
    step = count = 0
    while coming:
        group = [request for request in coming[:max_num_seqs] if request.arrival <= step]
        if not group:
            step = coming[0].arrival
            continue
        coming = coming[len(group) :]
        longest = max(request.tokens for request in group)
        count += longest - 1
        step += longest
    return count


def skewed_trace(
    rng: Generator,
    model: ScriptedModel,
    *,
    requests: int = 24,
    max_num_seqs: int = 4,
    short: tuple[int, int] = (1, 8),
    long: tuple[int, int] = (40, 60),
    prompts: tuple[int, int] = (1, 20),
    last_arrival: int = 0,
    token_budget: int | None = None,
) -> Trace:
    """A trace of mostly short answers, drawn until static batching needs STATIC_FACTOR times what is allowed, and the
    order of admission matters no more than the bound provides for.

    One answer of `max_num_seqs` is long; the ranges hold both ends. Half of the answers end with an end-of-sequence
    token long before max_tokens. The first `max_num_seqs` requests are there from the beginning, the others arrive
    until step `last_arrival`. Raises ValueError when the sizes give no such trace.
    """
    for _ in range(TRIES):
        arrivals = sorted(int(step) for step in rng.integers(last_arrival + 1, size=max(0, requests - max_num_seqs)))
        arrivals = [0] * min(requests, max_num_seqs) + arrivals
        trace = [
            _draw_request(rng, model, f"r{index}", long if rng.integers(max_num_seqs) == 0 else short, prompts, arrival)
            for index, arrival in enumerate(arrivals)
        ]
        allowed = allowed_decode_steps(trace, max_num_seqs, token_budget)
        if static_decode_steps(trace, max_num_seqs) >= STATIC_FACTOR * allowed and all(
            SLACK * decode_steps(trace, _any_order(rng, trace), max_num_seqs, token_budget) <= allowed
            for _ in range(OTHER_ORDERS)
        ):
            return trace
    raise ValueError(f"no trace of {TRIES} needs {STATIC_FACTOR:g} times the steps with static batching")


def _any_order(rng: Generator, trace: Trace) -> Order:
    rank = {request.id: float(number) for request, number in zip(trace, rng.permutation(len(trace)), strict=True)}
    return lambda request: rank[request.id]


def _draw_request(
    rng: Generator, model: ScriptedModel, name: str, tokens: tuple[int, int], prompts: tuple[int, int], arrival: int
) -> TraceRequest:
    count, length = int(rng.integers(*tokens, endpoint=True)), int(rng.integers(*prompts, endpoint=True))
    if rng.integers(2):
        prompt = model.prompt_for(rng, count, length)
        params = SamplingParams(temperature=0.0, max_tokens=count + int(rng.integers(1, 100)))
    else:
        prompt = model.prompt(rng, length)
        params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
    return TraceRequest(name, tuple(prompt), params, count, arrival)


def random_trace(rng: Generator, vocab_size: int, requests: int, lengths: tuple[int, int]) -> Trace:
    """Requests with random prompts, all there from the beginning; prompt and answer have lengths of this range (both
    ends included), and end-of-sequence tokens are ignored."""
    trace = []
    for index in range(requests):
        length, tokens = (int(number) for number in rng.integers(*lengths, size=2, endpoint=True))
        prompt = tuple(int(token) for token in rng.integers(vocab_size, size=length))
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        trace.append(TraceRequest(f"r{index}", prompt, params, tokens))
    return trace


def scripted_answers(trace: Trace, model: ScriptedModel) -> dict[str, tuple[list[int], str]]:
    """The exact answer to every request that is not aborted."""
    return {
        request.id: model.stream(request.prompt, request.params.max_tokens, ignore_eos=request.params.ignore_eos)
        for request in trace
        if request.abort_after is None and request.error is None
    }


# Memory


def kv_bytes_per_token(config: LlamaConfig) -> int:
    """Bytes of the keys and values of one token in all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * BF16_BYTES
