"""Greedy streams are right when each token is as good as the reference's first choice, and nearly all are that."""

from typing import Any

import numpy as np
import pytest

from grader.failure import Failure
from grader.oracle.llama import FLOAT32, Forward, LlamaOracle, Operations
from grader.oracle.streams import MEAN_FACTOR, TOKEN_FACTOR, expect_stream, expect_streams, read_stream

VOCABULARY = 50
ERROR = 0.01
"""The rms error of the stand-in's bf16 rows."""


class StandIn(LlamaOracle):
    """Logits that depend on the last token and its position: the best one is far ahead, the next two are
    `near` units and 100 units behind it."""

    def __init__(self, near: float = 3.0) -> None:
        self.near = near

    def forward(self, ids: Any, operations: Operations = FLOAT32) -> Forward:
        logits = np.zeros((len(ids), VOCABULARY), np.float32)
        for position, token in enumerate(ids):
            first, second, third = self.choices(token, position)
            logits[position, first] = 20
            logits[position, second] = 20 - self.near * ERROR
            logits[position, third] = 20 - 100 * ERROR
        noise = np.where(np.arange(VOCABULARY) % 2, ERROR, -ERROR).astype(np.float32)
        return Forward(logits if operations is FLOAT32 else logits + noise, [])

    def choices(self, token: int, position: int) -> tuple[int, int, int]:
        first = (token * 7 + position * 3 + 1) % VOCABULARY
        return first, (first + 1) % VOCABULARY, (first + 2) % VOCABULARY

    def stream(self, prompt: list[int], count: int, ranks: dict[int, int] | None = None) -> list[int]:
        """Greedy tokens, of which those at the indices in `ranks` are the second or third choice."""
        ids = list(prompt)
        for index in range(count):
            ids.append(self.choices(ids[-1], len(ids) - 1)[(ranks or {}).get(index, 0)])
        return ids[len(prompt) :]


PROMPT = [3, 1, 4]


def test_the_reference_s_own_choices_have_no_regret() -> None:
    oracle = StandIn()
    tokens = oracle.stream(PROMPT, 300)
    assert read_stream(oracle, "a", PROMPT, tokens).unit == pytest.approx(ERROR, rel=1e-3)
    assert not read_stream(oracle, "a", PROMPT, tokens).regrets.any()
    expect_streams(oracle, {"a": (PROMPT, tokens[:150]), "b": (PROMPT, tokens)})


def test_a_near_tie_may_fall_either_way_and_the_stream_goes_on_from_there() -> None:
    oracle = StandIn(near=TOKEN_FACTOR - 0.5)
    expect_stream(oracle, PROMPT, oracle.stream(PROMPT, 40, {5: 1}))


def test_a_token_far_from_the_first_choice_is_named_with_what_the_reference_prefers() -> None:
    oracle = StandIn()
    tokens = oracle.stream(PROMPT, 40, {5: 2})
    with pytest.raises(Failure) as caught:
        expect_stream(oracle, PROMPT, tokens, "the answer to r7")
    assert caught.value.verdict == "INCORRECT_VALUE"
    assert f"Token 5 of the answer to r7 is {tokens[5]}; the reference prefers {tokens[5] - 2}" in caught.value.message
    assert "1 of 40 tokens is wrong; those before it are right." in caught.value.message


@pytest.mark.parametrize(
    ("index", "said"), [(0, "prefill of the 3 tokens"), (1, "first that decode gives"), (9, "written after 12 tokens")]
)
def test_the_hint_tells_where_the_first_wrong_token_comes_from(index: int, said: str) -> None:
    oracle = StandIn()
    with pytest.raises(Failure) as caught:
        expect_stream(oracle, PROMPT, oracle.stream(PROMPT, 20, {index: 2}))
    assert said in caught.value.evidence["hint"]


def test_a_token_that_comes_twice_is_told_as_such() -> None:
    oracle = StandIn()
    tokens = oracle.stream(PROMPT, 6)
    with pytest.raises(Failure) as caught:
        expect_stream(oracle, PROMPT, [*tokens, tokens[-1]])
    assert "came again" in caught.value.evidence["hint"]


def test_small_regrets_everywhere_fail_by_their_mean() -> None:
    oracle = StandIn(near=1.0)
    rare, often = int(1 / MEAN_FACTOR) + 2, int(1 / MEAN_FACTOR) - 2
    expect_streams(oracle, {"a": (PROMPT, oracle.stream(PROMPT, 400, dict.fromkeys(range(0, 400, rare), 1)))})
    with pytest.raises(Failure, match="too many are not its first choice") as caught:
        expect_streams(oracle, {"a": (PROMPT, oracle.stream(PROMPT, 400, dict.fromkeys(range(0, 400, often), 1)))})
    assert caught.value.evidence["threshold"] == MEAN_FACTOR


def test_a_mean_of_too_few_tokens_is_a_mistake_of_the_check() -> None:
    oracle = StandIn()
    with pytest.raises(ValueError, match="255 tokens past the first 64"):
        expect_streams(oracle, {"a": (PROMPT, oracle.stream(PROMPT, 61 + 255))})


def test_an_empty_answer_has_nothing_wrong() -> None:
    expect_stream(StandIn(), PROMPT, [])
    oracle = StandIn()
    expect_streams(oracle, {"a": (PROMPT, oracle.stream(PROMPT, 400)), "b": (PROMPT, [])})
