"""Answers are held against exact ones, and what is wrong with them is told."""

from typing import Any

import numpy as np
import pytest
from given.requests import Completion

from grader.checking.api import require
from grader.failure import Failure
from grader.traces.answers import after_pause, expect_answers, expect_counts, read_completions, read_step
from grader.worker.arguments import Handle

WANT = {"a": ([1, 2, 3, 4, 5, 6], "length"), "b": ([11, 12, 13, 14, 15, 16], "stop")}


def failure(**got: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        expect_answers({**WANT, **got}, WANT)
    return caught.value


def test_right_answers_pass() -> None:
    expect_answers(WANT, WANT)
    expect_answers({**WANT, "other": ([], "stop")}, WANT)


def test_the_first_wrong_token_is_named_with_what_it_looks_like() -> None:
    swapped = failure(a=([1, 2, 13, 14, 15, 16], "length"))
    assert swapped.message == 'Token 2 of the answer to "a" is 13; it must be 3.'
    assert 'part of the answer to "b"' in swapped.evidence["hint"]
    assert "was left out" in failure(a=([1, 3, 4, 5, 6, 7], "length")).evidence["hint"]
    assert "came again, once" in failure(a=([1, 2, 2, 3, 4, 5], "length")).evidence["hint"]
    assert "came again: is each" in failure(a=([1, 2, 2, 2, 2, 2], "length")).evidence["hint"]
    assert "hint" not in failure(a=([1, 2, 99, 3, 4, 5], "length")).evidence


def test_lengths_reasons_and_absent_answers() -> None:
    assert "has 2 tokens; it must end after 6 (length)" in failure(a=([1, 2], "length")).message
    longer = failure(b=([*WANT["b"][0], 17], "stop"))
    assert longer.message == 'The answer to "b" has 7 tokens; it must end after 6 (stop).'
    assert longer.evidence["hint"].startswith("Token 5 of it is an end-of-sequence token: a model may have several")
    assert "hint" not in failure(a=([*WANT["a"][0], 7], "length")).evidence
    assert 'the finish reason "length"; it must be "stop"' in failure(b=(WANT["b"][0], "length")).message
    with pytest.raises(Failure, match='Request "b" got no answer'):
        expect_answers({"a": WANT["a"]}, WANT)


def test_the_first_wrong_token_in_time_is_told_and_the_pause_before_it() -> None:
    got = {"a": ([1, 2, 3, 4, 5, 99], "length"), "b": ([11, 12, 3, 98, 15, 16], "stop")}
    received = {"a": [0, 1, 4, 5, 6, 7], "b": [1, 2, 4, 6, 7, 8], "c": [0, 3]}
    with pytest.raises(Failure) as caught:
        expect_answers(got, WANT, received)
    told = 'Token 2 of the answer to "b" is 3; it must be 13. "b" got no token in step 3, as if it had been preempted;'
    assert caught.value.message == f"{told} this is its first token after that."
    assert 'the token that "a" should have got in this step' in caught.value.evidence["hint"]
    assert after_pause("b", 5, received).endswith("this is token 3 after that.")
    assert after_pause("b", 1, received) == after_pause("c", 0, received) == after_pause("x", 3, received) == ""


def test_a_pause_before_a_wrong_count_is_told() -> None:
    received = {"a": [0, 1, 4, 5], "b": [1, 2, 3, 4]}
    with pytest.raises(Failure, match="must end after 6") as caught:
        expect_answers({**WANT, "a": ([1, 2, 3, 4], "length")}, WANT, received)
    told = '"a" got no token in steps 2 to 3, as if it had been preempted: was a token lost there, or counted twice?'
    assert caught.value.message.endswith(told)


def test_completions_in_another_order_are_told() -> None:
    completions = [Completion([1] * count, None, "length") for count in (2, 5, 8)]
    expect_counts(completions, (2, 5, 8))
    with pytest.raises(Failure, match="answer to prompt 0 has 2 tokens; it must have 8") as caught:
        expect_counts(completions, (8, 2, 5))
    assert caught.value.evidence["hint"].startswith("The answer to prompt 1 has this many:")
    with pytest.raises(Failure, match="answer to prompt 2 has 8 tokens; it must have 9") as caught:
        expect_counts(completions, (2, 5, 9))
    assert "hint" not in caught.value.evidence


def test_completions_have_their_form() -> None:
    good = ([1, 2], None, "stop")
    assert read_completions([good, ([], "text", "length")], 2, 9)[0].token_ids == [1, 2]
    for value, said in (
        (7, "must return a list"),
        ([good], "1 completions for 2 prompts"),
        ([good, ([1, 9], None, "stop")], "Completion 1 has the token 9"),
        ([good, ([1.0], None, "stop")], "token of type float"),
        ([good, ([1], None, "done")], "must be a Completion"),
        ([good, None], "must be a Completion"),
    ):
        with pytest.raises(Failure, match=said):
            read_completions(value, 2, 9)


@pytest.mark.parametrize("condition", [np.array([True, True]), np.array([]), 1, "yes", [True], False, np.False_])
def test_what_is_no_true_condition_does_not_hold(condition: Any) -> None:
    with pytest.raises(Failure, match="told"):
        require(condition, "told")


def test_objects_that_stayed_in_the_worker_are_named_by_their_type() -> None:
    with pytest.raises(Failure, match="not <generator>"):
        read_step(Handle(3, "generator"), 10)
    with pytest.raises(Failure, match="a token of type Token;"):
        read_step([("a", Handle(3, "Token"), None)], 10)
