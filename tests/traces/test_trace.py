"""The bounds that the parent computes from a trace."""

from pathlib import Path

import numpy as np
import pytest
from given.requests import SamplingParams

from grader.oracle.scripted import ScriptedModel, scripted_model
from grader.traces.trace import (
    SLACK,
    STATIC_FACTOR,
    TraceRequest,
    allowed_decode_steps,
    decode_steps,
    first_come,
    longest_first,
    random_trace,
    scripted_answers,
    shortest_first,
    skewed_trace,
    static_decode_steps,
)


def trace(*tokens: int, prompt: int = 1, arrivals: tuple[int, ...] = ()) -> list[TraceRequest]:
    return [
        TraceRequest(
            f"r{i}", (0,) * prompt, SamplingParams(max_tokens=count), count, (arrivals or (0,) * len(tokens))[i]
        )
        for i, count in enumerate(tokens)
    ]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.fixture
def model(rng: np.random.Generator, tmp_path: Path) -> ScriptedModel:
    return scripted_model(rng, tmp_path)


def test_one_request_decodes_all_tokens_but_the_first() -> None:
    assert decode_steps(trace(5), first_come, 4) == static_decode_steps(trace(5), 4) == 4
    assert decode_steps(trace(1, 1), first_come, 4) == static_decode_steps(trace(1, 1), 4) == 0


def test_a_slot_is_taken_in_the_step_after_its_request_ended() -> None:
    # steps: r0 and r1 prefill; r0 ends; r2 prefills beside r1's second decode, and so on
    assert decode_steps(trace(2, 6, 4), first_come, 2) == 5
    assert static_decode_steps(trace(2, 6, 4), 2) == 5 + 3


def test_the_order_of_admission_matters() -> None:
    requests = trace(2, 2, 2, 2, 8)
    assert decode_steps(requests, longest_first, 2) == 7
    assert decode_steps(requests, shortest_first, 2) == 1 + 1 + 7
    assert allowed_decode_steps(requests, 2) == int(SLACK * 9)


def test_arrivals_keep_a_request_out() -> None:
    late = trace(3, 3, arrivals=(0, 10))
    assert decode_steps(late, first_come, 2) == static_decode_steps(late, 2) == 4
    assert decode_steps(trace(12, 3, arrivals=(0, 10)), first_come, 2) == 12


def test_the_budget_spreads_prefills_but_lets_one_prompt_in() -> None:
    assert decode_steps(trace(4, 4, prompt=10), first_come, 2, 20) == 3
    assert decode_steps(trace(4, 4, prompt=10), first_come, 2, 19) == 4
    assert decode_steps(trace(4, 4, prompt=10), first_come, 2, 1) == 4


def test_refused_requests_need_no_steps() -> None:
    refused = TraceRequest("big", (0,) * 900, SamplingParams(), 0, error="RequestTooLong")
    assert decode_steps([*trace(4), refused], first_come, 2) == static_decode_steps([*trace(4), refused], 2) == 3


@pytest.mark.parametrize(("slots", "last_arrival", "budget"), [(4, 0, None), (4, 40, 64), (8, 20, 64)])
def test_drawn_traces_tell_static_from_continuous_batching(
    rng: np.random.Generator, model: ScriptedModel, slots: int, last_arrival: int, budget: int | None
) -> None:
    drawn = skewed_trace(rng, model, requests=40, max_num_seqs=slots, last_arrival=last_arrival, token_budget=budget)
    allowed = allowed_decode_steps(drawn, slots, budget)
    assert static_decode_steps(drawn, slots) >= STATIC_FACTOR * allowed
    assert [request.arrival for request in drawn[:slots]] == [0] * slots
    answers = scripted_answers(drawn, model)
    assert all(len(answers[request.id][0]) == request.tokens for request in drawn)
    assert {reason for _, reason in answers.values()} == {"stop", "length"}


def test_sizes_that_give_no_skewed_trace_are_refused(rng: np.random.Generator, model: ScriptedModel) -> None:
    with pytest.raises(ValueError, match="no trace of"):
        skewed_trace(rng, model, requests=6, short=(5, 5), long=(5, 5))


def test_a_random_trace_is_the_seed_s(rng: np.random.Generator) -> None:
    first, second = (random_trace(np.random.default_rng(0), 500, 20, (10, 30)) for _ in range(2))
    assert first == second
    assert all(10 <= len(request.prompt) <= 30 and 10 <= request.tokens <= 30 for request in first)
    assert all(request.params.ignore_eos and request.params.temperature == 0 for request in first)
