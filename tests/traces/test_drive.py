"""Sane schedulers of every kind pass the bounds on drawn traces; toys, wrong answers and starvation do not."""

from typing import Any

import numpy as np
import pytest
from given.requests import SamplingParams

from grader.checks.support.llm import serve_exactly
from grader.failure import Failure
from grader.oracle.scripted import ScriptedModel, scripted_model
from grader.traces.answers import expect_answers
from grader.traces.drive import (
    TraceRun,
    drive,
    expect_decode_steps,
    expect_fair,
    expect_lengths,
    expect_no_starvation,
    expect_other_steps,
    expect_running,
    expect_slots,
)
from grader.traces.trace import Trace, TraceRequest, random_trace, scripted_answers, skewed_trace
from grader.worker.student_errors import StudentError
from tests.traces import schedulers
from tests.traces.schedulers import LLM, SANE, Engine

SLOTS = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ScriptedModel:
    return scripted_model(np.random.default_rng(0), tmp_path_factory.mktemp("scripted"))


def draw(model: ScriptedModel, seed: int, last_arrival: int = 0, budget: int | None = None) -> Trace:
    rng = np.random.default_rng(seed)
    return skewed_trace(rng, model, max_num_seqs=SLOTS, last_arrival=last_arrival, token_budget=budget)


def run(kind: type[Engine], model: ScriptedModel, trace: Trace, budget: int | None = None) -> TraceRun:
    engine = kind(SLOTS, budget or float("inf"), model.successor, model.config.eos_token_ids)
    return drive(engine, LLM, trace, model.config.vocab_size)


def requests(*tokens: int) -> list[TraceRequest]:
    params = [SamplingParams(max_tokens=count, ignore_eos=True) for count in tokens]
    return [TraceRequest(f"r{i}", (i,), param, param.max_tokens) for i, param in enumerate(params)]


@pytest.mark.parametrize("kind", SANE)
@pytest.mark.parametrize(("last_arrival", "budget"), [(0, None), (30, 64), (60, None)])
def test_sane_schedulers_pass(kind: type[Engine], model: ScriptedModel, last_arrival: int, budget: int | None) -> None:
    for seed in range(3):
        trace = draw(model, seed, last_arrival, budget)
        seen = run(kind, model, trace, budget)
        expect_answers(seen.answers, scripted_answers(trace, model))
        expect_lengths(seen, trace)
        expect_decode_steps(seen, trace, SLOTS, budget)
        expect_other_steps(seen)
        expect_running(seen, SLOTS, "there are as many slots")
        expect_fair(seen, SLOTS)
        assert seen.interruptions == 0


@pytest.mark.parametrize("kind", [schedulers.Static, schedulers.OneByOne, schedulers.OneTokenAStep])
def test_toys_need_too_many_decode_steps(kind: type[Engine], model: ScriptedModel) -> None:
    for seed in range(3):
        trace = draw(model, seed)
        seen = run(kind, model, trace)
        expect_answers(seen.answers, scripted_answers(trace, model))
        with pytest.raises(Failure, match="Fill a slot in the step after its request ended") as caught:
            expect_decode_steps(seen, trace, SLOTS)
        assert caught.value.verdict == "TOO_SLOW"
        assert caught.value.evidence["figure"] > caught.value.evidence["threshold"] > 0


def test_what_was_seen_is_counted() -> None:
    seen = drive(Engine(2), LLM, requests(2, 4, 3), 9)
    assert [sorted(outputs) for outputs in seen.steps] == [
        ["r0", "r1"], ["r0", "r1"], ["r1", "r2"], ["r1", "r2"], ["r2"]
    ]  # fmt: skip
    assert (seen.decode_steps, seen.other_steps, seen.most_running) == (4, 1, 2)
    assert seen.tokens_per_step == 9 / 5
    assert seen.longest_wait[0] == seen.most_overtaken[0] == seen.interruptions == 0
    assert seen.answers["r2"] == ([0, 0, 0], "length")


def test_prefills_that_hold_up_the_running_requests_are_starvation() -> None:
    trace = [
        TraceRequest(f"r{i}", (i,), SamplingParams(max_tokens=n), n, i) for i, n in enumerate((9, 1, 1, 1, 1, 1, 1))
    ]
    seen = drive(schedulers.PrefillStarves(2), LLM, trace, 9)
    assert seen.longest_wait == (6, "r0")
    with pytest.raises(Failure, match="got no token in 6 steps in a row; at most 4"):
        expect_no_starvation(seen)
    expect_no_starvation(drive(Engine(2), LLM, trace, 9))


def test_passing_over_a_request_again_and_again_is_unfair() -> None:
    trace = requests(*[3] * 12)
    with pytest.raises(
        Failure, match='10 requests that were added after "r1" got their first token before it; at most 3'
    ):
        expect_fair(drive(schedulers.NewestFirst(2), LLM, trace, 9), 3)


def test_an_interrupted_request_is_noticed() -> None:
    class Interrupts(Engine):
        calls = 0

        def step(self) -> Any:
            self.calls += 1
            outputs = super().step() if self.calls != 3 else [self.give("r1")]
            return outputs

    assert drive(Interrupts(2), LLM, requests(5, 5), 9).interruptions == 1


def test_steps_without_a_decode_are_limited() -> None:
    class Dawdles(Engine):
        calls = 0

        def step(self) -> Any:
            self.calls += 1
            return super().step() if self.calls % 2 else []

    seen = drive(Dawdles(2), LLM, requests(4, 4), 9)
    assert seen.other_steps == 4
    with pytest.raises(Failure, match="In 4 steps no running request got a token, for 2 requests; at most 2"):
        expect_other_steps(seen)


def test_too_few_at_once_is_told() -> None:
    seen = drive(schedulers.OneByOne(), LLM, requests(2, 2), 9)
    with pytest.raises(Failure, match="At most 1 of the requests got a token in one step; 2 must, because memory"):
        expect_running(seen, 2, "memory suffices for them")


def test_aborted_and_refused_requests(model: ScriptedModel) -> None:
    class Refuses(Engine):
        def add_request(self, name: str, prompt: list[int], params: SamplingParams) -> None:
            if len(prompt) > 50:
                raise StudentError(("RequestTooLong", "ValueError"), "too long")
            super().add_request(name, prompt, params)

    params = SamplingParams(max_tokens=6, ignore_eos=True)
    trace = [
        TraceRequest("a", (1,), params, 6),
        TraceRequest("b", (2,), params, 2, abort_after=2),
        TraceRequest("big", (3,) * 51, params, 0, error="RequestTooLong"),
        TraceRequest("c", (4,), params, 0, 1, abort_after=0),
        TraceRequest("d", (5,), params, 6, 2),
    ]
    seen = drive(Refuses(2, successor=model.successor), LLM, trace, model.config.vocab_size)
    assert seen.aborted == {"b", "c"}
    assert set(seen.answers) == {"a", "d"}
    expect_answers(seen.answers, scripted_answers(trace, model))
    expect_lengths(seen, trace)
    with pytest.raises(Failure, match="it must raise RequestTooLong"):
        drive(Engine(2), LLM, trace, 9)


def test_an_engine_that_never_ends_is_ended() -> None:
    class Silent(Engine):
        def step(self) -> Any:
            return []

    with pytest.raises(
        Failure, match=r'The last 21 steps gave no token, though 1 request is unfinished, "r0" first: does'
    ) as caught:
        drive(Silent(), LLM, requests(4), 9)
    assert caught.value.verdict == "TIMEOUT"
    assert caught.value.message.endswith("Its stats() are {'running': 0, 'waiting': 1}.")


def answers_with(outputs: Any, unfinished: object = False) -> Failure:
    """The failure of an engine that gives these outputs in its first step."""

    class Answers(Engine):
        def step(self) -> Any:
            self.calls = getattr(self, "calls", 0) + 1
            return outputs if self.calls == 1 else [("r0", 0, "length")] if self.calls == 2 else outputs

        def has_unfinished_requests(self) -> Any:
            return unfinished

    with pytest.raises(Failure) as caught:
        drive(Answers(), LLM, requests(2), 9)
    return caught.value


@pytest.mark.parametrize(
    ("outputs", "verdict", "said"),
    [
        (None, "INCORRECT_DTYPE", "step must return a list of StepOutput, not None"),
        ([("r0", 1)], "INCORRECT_DTYPE", "each entry must be a StepOutput"),
        ([(0, 1, None)], "INCORRECT_DTYPE", "each entry must be a StepOutput"),
        ([("r0", np.int64(1), None)], "INCORRECT_DTYPE", "tokens are Python integers"),
        ([("r0", True, None)], "INCORRECT_DTYPE", "tokens are Python integers"),
        ([("r0", 9, None)], "INCORRECT_VALUE", "the token 9; the vocabulary is 0 … 8"),
        ([("r0", 1, "done")], "INCORRECT_VALUE", "finish reason 'done'"),
        ([("r0", 1, None), ("r0", 2, None)], "INCORRECT_VALUE", 'gave request "r0" two tokens'),
        ([("r8", 1, None)], "INCORRECT_VALUE", 'a token to "r8", a request that was never added'),
    ],
)
def test_an_output_of_another_form_is_refused(outputs: Any, verdict: str, said: str) -> None:
    failure = answers_with(outputs)
    assert failure.verdict == verdict
    assert said in failure.message


def test_the_end_must_be_the_end() -> None:
    assert "has_unfinished_requests() is True" in answers_with([("r0", 1, None)], True).message
    assert 'a step still gave a token to "r0"' in answers_with([("r0", 1, None)]).message


def test_a_request_without_a_finish_reason_at_its_limit_is_told() -> None:
    class Forgets(Engine):
        def give(self, name: str) -> tuple[str, int, str | None]:
            return (*super().give(name)[:2], None)

    with pytest.raises(Failure, match=r'Request "r0" has 2 of 2 tokens \(max_tokens\), but no finish reason'):
        drive(Forgets(), LLM, requests(2), 9)


def judged(engine: Engine, trace: Trace, model: ScriptedModel) -> Failure:
    with pytest.raises(Failure) as caught:
        serve_exactly(engine, LLM, trace, model)
    return caught.value


class GivesTwice(Engine):
    """The token of each request's third step comes again in the next one, and the request ends a step too late."""

    def give(self, name: str) -> tuple[str, int, str | None]:
        tokens = self.tokens[name]
        if len(tokens) == 3 and name not in self.overtaken:
            self.overtaken[name] = 1
            return name, tokens[-1], None
        return super().give(name)


class Swaps(Engine):
    """From the third step on the first two requests of a step get each other's tokens, and go on from there."""

    calls = 0

    def step(self) -> list[tuple[str, int, str | None]]:
        outputs = super().step()
        self.calls += 1
        if self.calls < 3 or len(outputs) < 2:
            return outputs
        (a, its, end), (b, others, other_end), *rest = outputs
        self.tokens[a][-1], self.tokens[b][-1] = others, its
        return [(a, others, end), (b, its, other_end), *rest]


class Preempts(Engine):
    """ "r0" gets nothing in the steps 3 and 4, and forgets a token over it."""

    calls = -1

    def step(self) -> list[tuple[str, int, str | None]]:
        self.calls += 1
        if self.calls in (3, 4):
            return [self.give(name) for name in self.running if name != "r0"]
        if self.calls == 5:
            self.tokens["r0"][-1:] = [9, 9]
        return super().step()


def test_a_wrong_token_is_told_before_what_follows_from_it(model: ScriptedModel) -> None:
    twice = judged(GivesTwice(2, successor=model.successor), requests(6, 6), model)
    assert twice.message.startswith('Token 3 of the answer to "r0" is')
    assert twice.evidence["hint"] == "The token before it came again, once; the tokens after it are right."
    swapped = judged(Swaps(2, successor=model.successor), requests(6, 6), model)
    assert 'the token that "r1" should have got in this step' in swapped.evidence["hint"]


def test_the_steps_in_which_a_request_got_nothing_are_told(model: ScriptedModel) -> None:
    message = judged(Preempts(2, successor=model.successor), requests(9, 9), model).message
    told = '"r0" got no token in steps 3 to 4, as if it had been preempted; this is its first token after that.'
    assert message.startswith('Token 3 of the answer to "r0" is')
    assert message.endswith(told)


def test_an_answer_that_goes_on_after_its_end_is_told(model: ScriptedModel) -> None:
    prompt = model.prompt_for(np.random.default_rng(0), 5)
    trace = [TraceRequest("r0", tuple(prompt), SamplingParams(temperature=0.0, max_tokens=90), 5)]
    failure = judged(Engine(2, successor=model.successor), trace, model)
    assert failure.message == 'The answer to "r0" has 6 tokens so far; it must end after 5 (stop).'
    assert failure.evidence["hint"].startswith("Token 4 of it is an end-of-sequence token")


def test_a_token_after_the_end_is_refused() -> None:
    class GoesOn(Engine):
        def step(self) -> Any:
            return [("r0", 1, "stop"), ("r1", 1, None)]

    with pytest.raises(Failure, match=r'gave a token to "r0", which had ended before \("stop"\)'):
        drive(GoesOn(), LLM, requests(3, 3), 9)


def test_an_answer_of_another_length_is_told() -> None:
    trace = random_trace(np.random.default_rng(0), 9, 3, (4, 8))
    seen = drive(Engine(eos=(0,)), LLM, trace, 9)
    expect_lengths(seen, trace)
    seen.tokens["r1"].pop()
    with pytest.raises(Failure, match='The answer to "r1" has'):
        expect_lengths(seen, trace)


def test_more_requests_at_once_than_slots_are_refused() -> None:
    expect_slots(drive(Engine(3), LLM, requests(*[4] * 6), 9), 3)
    with pytest.raises(
        Failure, match="In step 0 and in the next 3 requests got tokens; max_num_seqs is 2: at most this"
    ):
        expect_slots(drive(Engine(3), LLM, requests(*[4] * 6), 9), 2)


@pytest.mark.parametrize(("abort_after", "said"), [(0, "while it waited"), (1, "while it ran")])
def test_an_aborted_request_that_gets_a_token_is_named_with_what_it_did(abort_after: int, said: str) -> None:
    class Deaf(Engine):
        def abort(self, name: str) -> None:
            pass

    params = SamplingParams(max_tokens=4)
    trace = [TraceRequest(f"r{i}", (i,), params, 4, abort_after=abort_after if i == 1 else None) for i in range(3)]
    slots = 1 if abort_after == 0 else 3
    with pytest.raises(Failure, match=f'gave a token to "r1", which was aborted before, {said}'):
        drive(Deaf(slots), LLM, trace, 9)
