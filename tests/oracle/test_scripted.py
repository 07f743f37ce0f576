"""The scripted model says what its file says it says."""

from pathlib import Path

import numpy as np
import pytest

from grader.model.weight_shapes import kv_bytes_per_token
from grader.oracle.llama import FLOAT32, HUGGING_FACE_BF16
from grader.oracle.references import load_oracle
from grader.oracle.scripted import MARGIN, ScriptedModel, scripted_model


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.fixture
def model(rng: np.random.Generator, tmp_path: Path) -> ScriptedModel:
    return scripted_model(rng, tmp_path)


@pytest.mark.parametrize("operations", [FLOAT32, HUGGING_FACE_BF16])
def test_the_model_gives_the_successor_of_every_token_with_a_margin(model: ScriptedModel, operations: object) -> None:
    oracle = load_oracle(model.folder)
    for tokens in np.array_split(np.arange(model.config.vocab_size), 4):
        logits = oracle.forward(tokens, operations).logits  # type: ignore[arg-type]
        assert (logits.argmax(axis=1) == model.successor[tokens]).all()
        ordered = np.sort(logits, axis=1)
        assert (ordered[:, -1] - ordered[:, -2]).min() >= MARGIN - 0.01


def test_all_tokens_lie_on_one_cycle(model: ScriptedModel) -> None:
    stream = model.continuation(7, model.config.vocab_size)
    assert sorted(stream) == list(range(model.config.vocab_size))
    assert stream[-1] == 7


def test_answers_end_at_each_end_of_sequence_id(model: ScriptedModel, rng: np.random.Generator) -> None:
    assert len(set(model.config.eos_token_ids)) == 4
    for steps in (1, 2, 17, model.longest_answer() - 1):
        for eos in model.config.eos_token_ids:
            prompt = model.prompt_for(rng, steps, 5, eos)
            assert len(prompt) == 5
            tokens, reason = model.stream(prompt, 1000)
            assert (len(tokens), tokens[-1], reason) == (steps, eos, "stop")
            assert not set(tokens[:-1]) & set(model.config.eos_token_ids)


def test_limits_end_an_answer_before_its_end_of_sequence_token(model: ScriptedModel, rng: np.random.Generator) -> None:
    prompt = model.prompt_for(rng, 9, 3)
    assert model.stream(prompt, 9)[1] == "stop"
    assert [len(part) if isinstance(part, list) else part for part in model.stream(prompt, 8)] == [8, "length"]
    assert len(model.stream(prompt, 20, ignore_eos=True)[0]) == 20
    assert model.stream(prompt, 20, max_length=10) == (model.continuation(prompt[-1], 7), "length")


def test_a_length_that_no_answer_has_is_refused(model: ScriptedModel, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="the longest has 256"):
        model.prompt_for(rng, 257)


def test_end_of_sequence_ids_can_be_chosen_or_left_out(rng: np.random.Generator, tmp_path: Path) -> None:
    chosen = scripted_model(rng, tmp_path, vocab_size=100, eos_token_ids=(3, 99), max_position_embeddings=64)
    assert chosen.config.eos_token_ids == (3, 99)
    assert chosen.config.max_position_embeddings == 64
    assert chosen.stream(chosen.prompt_for(rng, 50), 60)[1] == "stop"
    (tmp_path / "none").mkdir()
    endless = scripted_model(rng, tmp_path / "none", vocab_size=50, eos_token_ids=())
    assert endless.stream([4], 60) == (endless.continuation(4, 60), "length")


def test_memory_of_the_scripted_model(model: ScriptedModel) -> None:
    wanted = 2 * 2 * 2 * 16 * 2  # keys and values, layers, heads, head size, bf16
    assert kv_bytes_per_token(model.config) == wanted
