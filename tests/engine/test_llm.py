"""LLM's calls one by one: options, refusals, generate, and what a failure leaves."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from given.requests import RequestTooLong, SamplingParams, UnknownRequest

from tests.engine.fakes import EOS, LONGEST, VOCAB, stream_alone

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
DRAWN = SamplingParams(temperature=0.9, seed=5, max_tokens=12, ignore_eos=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_model_len": LONGEST + 1}, f"max_model_len must be a whole number from 1 to {LONGEST}"),
        ({"block_size": -16}, "block_size"),
        ({"num_blocks": 0}, "num_blocks"),
        ({"num_blocks": 2.5}, "num_blocks"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens"),
        ({"num_blocks": 4, "kv_memory_bytes": 1 << 20}, "both"),
        ({"kv_memory_bytes": 1023}, "one block of this model takes 1024 bytes"),
    ],
)
def test_options_that_mean_nothing(llm_class: Any, model_dir: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm_class(str(model_dir), **options)


@pytest.mark.parametrize(
    ("options", "blocks", "longest"),
    [
        ({}, 8 * 4, LONGEST),
        ({"max_num_seqs": 3, "max_model_len": 17}, 3 * 2, 17),
        ({"kv_memory_bytes": 3 * 1024 + 1023}, 3, 48),
        ({"num_blocks": 2, "block_size": 8}, 2, 16),
    ],
)
def test_the_size_of_the_cache(
    llm_class: Any, model_dir: Path, options: dict[str, int], blocks: int, longest: int
) -> None:
    llm = llm_class(str(model_dir), **options)
    assert llm.stats()["total_blocks"] == llm.stats()["free_blocks"] == blocks
    with pytest.raises(RequestTooLong):
        llm.add_request("a", [1] * longest, GREEDY)
    llm.add_request("a", [1] * (longest - 1), GREEDY)
    ((_, _, reason),) = llm.step()
    assert reason == "length"


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([], GREEDY, "empty"),
        ([1, VOCAB], GREEDY, "outside 0"),
        ([-1], GREEDY, "outside 0"),
        ([1.5], GREEDY, "whole numbers"),
        ([[1], [2, 3]], GREEDY, "whole numbers"),
        (None, GREEDY, "whole numbers"),
        ("text", GREEDY, "tokenizer.json is missing"),
        ([1], SamplingParams(max_tokens=0), "max_tokens is 0"),
        ([1], {"temperature": 0}, "SamplingParams, not dict"),
        ([1] * LONGEST, GREEDY, "longest context"),
    ],
)
def test_refused_requests_change_nothing(
    llm_class: Any, model_dir: Path, prompt: Any, params: Any, message: str
) -> None:
    llm = llm_class(str(model_dir))
    before = llm.stats()
    with pytest.raises(ValueError, match=message):
        llm.add_request("a", prompt, params)
    with pytest.raises(ValueError, match=f"prompt 1: .*{message}"):
        llm.generate([[1], prompt], [GREEDY, params])
    assert llm.stats() == before
    assert llm.step() == []


def test_names(llm_class: Any, model_dir: Path) -> None:
    """An id can be used again after its request has ended; nothing else than text is one."""
    llm = llm_class(str(model_dir))
    with pytest.raises(UnknownRequest, match="'a'"):
        llm.abort("a")
    with pytest.raises(ValueError, match="text"):
        llm.add_request(3, [1], GREEDY)
    for _ in range(2):
        llm.add_request("a", [1], GREEDY)
        llm.step()
        llm.abort("a")


def test_generate_answers_in_the_order_of_the_prompts(llm_class: Any, model_dir: Path) -> None:
    llm = llm_class(str(model_dir), max_num_seqs=4, num_blocks=20, block_size=4)
    prompts = [[number + 1] * (1 + number % 7) for number in range(20)]
    params = [
        SamplingParams(temperature=number % 2, seed=number, max_tokens=1 + 2 * number, ignore_eos=number % 3 > 0)
        for number in range(20)
    ]
    answers = llm.generate(prompts, params)
    assert answers == [
        (tokens, None, reason)
        for tokens, reason in (stream_alone(*pair, LONGEST) for pair in zip(prompts, params, strict=True))
    ]
    assert llm.stats()["preemptions"] > 0
    assert llm.generate([]) == []


def test_generate_refuses_to_run_beside_other_requests(llm_class: Any, model_dir: Path) -> None:
    llm = llm_class(str(model_dir))
    llm.add_request("0", [1], GREEDY)
    with pytest.raises(ValueError, match="1 added requests are unfinished"):
        llm.generate([[1]], GREEDY)
    with pytest.raises(ValueError, match="1 sampling_params for 2 prompts"):
        llm_class(str(model_dir)).generate([[1], [2]], [GREEDY])
    assert [token for (_, token, _) in llm.step()] == stream_alone([1], GREEDY, LONGEST)[0][:1]


def test_generate_leaves_nothing_behind_when_a_step_fails(llm_class: Any, model_dir: Path) -> None:
    llm = llm_class(str(model_dir))
    llm.runner.fail = {"in decode": RuntimeError("an illegal memory access")}
    with pytest.raises(RuntimeError, match="illegal"):
        llm.generate([[1], [2, 3]], GREEDY)
    assert not llm.has_unfinished_requests()
    assert llm.stats()["free_blocks"] == llm.stats()["total_blocks"]
    assert llm.generate([[2, 3]], GREEDY)[0].token_ids == stream_alone([2, 3], GREEDY, LONGEST)[0]


def test_text_in_text_out(llm_class: Any, model_dir: Path, tmp_path: Path) -> None:
    """The text has no end-of-sequence token, even where the tokenizer would show it."""
    shutil.copy(model_dir / "config.json", tmp_path)
    (tmp_path / "tokenizer.json").write_text(WORDS)
    llm = llm_class(str(tmp_path))
    params = SamplingParams(temperature=0, max_tokens=60)
    prompts = [f"t{number}" for number in range(VOCAB)]
    reasons = set()
    for number, answer in enumerate(llm.generate(prompts, params)):
        tokens, reason = stream_alone([number], params, LONGEST)
        assert answer.token_ids == tokens
        words = tokens[:-1] if reason == "stop" else tokens
        assert answer.text == " ".join(f"t{token}" for token in words)
        reasons.add(reason)
    assert "stop" in reasons
    assert llm.generate("t3", params) == llm.generate(["t3"], params)


WORDS = (
    '{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, '
    '"pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null, '
    '"model": {"type": "WordLevel", "unk_token": "t0", "vocab": {'
    + ", ".join(f'"t{number}": {number}' for number in range(VOCAB))
    + "}}}"
)


@pytest.mark.parametrize("place", ["argmax", "copy", "sampling"])
def test_a_seed_repeats_after_a_failure_anywhere(
    llm_class: Any, model_dir: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    engine = sys.modules[llm_class.__module__]
    llm = llm_class(str(model_dir))
    prompts = {"a": [1, 2], "b": [3], "c": [4, 5, 6]}
    for name, prompt in prompts.items():
        llm.add_request(name, prompt, DRAWN)
    got: dict[str, list[int]] = {name: [] for name in prompts}
    owner, attribute = {
        "argmax": (engine.ops, "argmax"),
        "copy": (engine.cuda, "memcpy_dtoh"),
        "sampling": (engine, "sample"),
    }[place]
    works = getattr(owner, attribute)
    calls = 0

    def fails_at_times(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 5 == 0:
            raise RuntimeError("an error of the device")
        return works(*arguments)

    monkeypatch.setattr(owner, attribute, fails_at_times)
    failures = 0
    while llm.has_unfinished_requests():
        try:
            for name, token, _ in llm.step():
                got[name].append(token)
        except RuntimeError:
            failures += 1
            assert llm.stats()["free_blocks"] == llm.stats()["total_blocks"]
    assert failures > 1
    assert got == {name: stream_alone(prompt, DRAWN, LONGEST)[0] for name, prompt in prompts.items()}


def test_one_copy_back_in_a_greedy_step(llm_class: Any, model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefill and decode together; logits are copied of the requests alone that draw their tokens."""
    cuda = sys.modules[llm_class.__module__].cuda
    copies: list[str] = []

    def noted(name: str, copy: Any) -> Any:
        def call(*arguments: Any) -> None:
            copies.append(name)
            copy(*arguments)

        return call

    for name in ("memcpy_dtoh", "memcpy_dtoh_async"):
        monkeypatch.setattr(cuda, name, noted(name, getattr(cuda, name)))
    llm = llm_class(str(model_dir))
    llm.add_request("a", [1], GREEDY)
    llm.step()
    llm.add_request("b", [2], GREEDY)
    copies.clear()
    llm.runner.launches.clear()
    llm.step()
    assert (llm.runner.launches, copies) == (["decode", "prefill"], ["memcpy_dtoh"])
    llm.add_request("c", [2], DRAWN)
    copies.clear()
    llm.step()
    assert copies == ["memcpy_dtoh_async", "memcpy_dtoh"]


def test_any_end_of_sequence_token_ends(llm_class: Any, model_dir: Path) -> None:
    llm = llm_class(str(model_dir))
    params = SamplingParams(temperature=0, max_tokens=60)
    answers = llm.generate([[number] for number in range(VOCAB)], params)
    assert {answer.token_ids[-1] for answer in answers if answer.finish_reason == "stop"} == set(EOS)
