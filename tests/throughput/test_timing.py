"""Times on a GPU are judged against the kit's own figures, on an unmeasured GPU against an estimate."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from grader import UsageError
from grader.failure import Failure
from grader.oracle.references import load_oracle
from grader.oracle.scripted import scripted_model
from grader.throughput import timing, workloads
from grader.throughput.timing import COPIED, UNKNOWN_GPU, expect_time, load_figures, roofline_seconds, wanted_rate
from grader.throughput.workloads import WORKLOADS, Timed, expect_part, serve
from grader.traces.trace import random_trace
from grader.worker.client import Worker
from tests.traces.schedulers import LLM, Engine

FILE = """
[gpu."NVIDIA H200".s16]
tokens_per_second = 1000.0
roofline = 0.4
[gpu."NVIDIA L4".s16]
tokens_per_second = 100.0
roofline = 0.3
"""


class Gpu:
    """A worker whose GPU copies 2^30 bytes in a second: its roofline reads 2^31 bytes a second."""

    def copy_time(self, size: int, repeats: int = 20) -> float:
        return size / 2**30


GPU = cast(Worker, Gpu())


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = tmp_path / "thresholds.toml"
    figures.write_text(FILE)
    monkeypatch.setattr(timing, "load_figures", lambda: load_figures(figures))
    monkeypatch.setattr(timing, "gpu_name", lambda: "NVIDIA H200")


def test_the_kit_s_own_file_is_of_its_form() -> None:
    for entries in load_figures().values():
        assert set(entries) <= set(WORKLOADS)
        assert all(0 < figure.roofline <= 1.5 for figure in entries.values())


@pytest.mark.parametrize(
    "text",
    ["[other]", "gpu = 3", "[gpu.X]\ns16 = 4", "[gpu.X.s16]\nroofline = 0.5", "[gpu", FILE.replace("0.4", "-0.4"),
     FILE.replace("0.4", '"0.4"')],
)  # fmt: skip
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(UsageError, match=r"t\.toml"):
        load_figures(tmp_path / "t.toml")


def test_the_roofline_comes_from_a_copy_s_bandwidth() -> None:
    assert roofline_seconds(GPU, 2**31) == 1.0
    assert COPIED > 100 << 20


def test_the_band_decides(known: None) -> None:
    notes: dict[str, Any] = {}
    expect_time(GPU, "s16", Timed(1.0, 500, 2**29), 0.5, notes)
    assert notes["time"] == (
        "500 tokens a second, 25% of what the memory bandwidth allows; the kit's engine: 1,000, measured on NVIDIA H200"
    )
    expect_time(GPU, "s16", Timed(1.0, 499, 2**29), 0.25, notes)
    with pytest.raises(Failure, match=r"at least 500 are needed, 0\.5 of the kit's engine's 1,000") as caught:
        expect_time(GPU, "s16", Timed(1.0, 499, 2**29), 0.5, notes)
    assert caught.value.verdict == "TOO_SLOW"
    assert caught.value.evidence == {"figure": 499.0, "threshold": 500.0}


def test_an_unmeasured_gpu_is_held_against_the_least_roofline_fraction(
    known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "gpu_name", lambda: "NVIDIA X")
    wanted = wanted_rate(timing.load_figures(), "NVIDIA X", "s16", 2000.0)
    assert wanted == (UNKNOWN_GPU * 0.3 * 2000, "estimated from NVIDIA L4, since NVIDIA X has not been measured")
    with pytest.raises(Failure, match="NVIDIA X has not been measured"):
        expect_time(GPU, "s16", Timed(20.0, 500, 2**31), 0.5, {})


def test_without_any_figure_nothing_is_judged(known: None) -> None:
    notes: dict[str, Any] = {}
    expect_time(GPU, "s09", Timed(1.0, 1, 2**29), 0.5, notes)
    assert notes["time"].startswith("not judged")


def test_serve_times_one_call_and_keeps_the_answers(tmp_path: Path) -> None:
    model = scripted_model(np.random.default_rng(0), tmp_path)
    calls: list[tuple[str, int]] = []

    class Generates(Engine):
        def call(self, target: Any, *arguments: Any, **options: Any) -> Any:
            if target == "llm.LLM":
                return LLM
            prompts, params = arguments
            every = params if isinstance(params, list) else [params] * len(prompts)
            calls.append((target[1], sum(each.max_tokens for each in every)))
            answers = zip(prompts, every, strict=True)
            return [(model.continuation(prompt[-1], each.max_tokens), None, "length") for prompt, each in answers]

    trace = random_trace(np.random.default_rng(1), 1024, 5, (6, 9))
    timed = serve(cast(Worker, Generates()), tmp_path, trace, {"max_num_seqs": 2})
    assert calls == [("generate", 5 * 4), ("generate", timed.tokens)]
    assert timed.tokens == sum(request.tokens for request in trace)
    oracle = load_oracle(tmp_path)
    expect_part(oracle, timed, np.random.default_rng(0))
    wrong = Timed(1.0, 1, 1, [(prompt, [*tokens[:-1], 0]) for prompt, tokens in timed.answers])
    with pytest.raises(Failure, match="of the timed answer to prompt"):
        expect_part(oracle, wrong, np.random.default_rng(0))


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_padded_from_its_65th_token_on_is_seen(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    model = scripted_model(rng, tmp_path)
    prompts = [model.prompt(rng, 4) for _ in range(3)]
    answers = [(prompt, model.continuation(prompt[-1], 160)) for prompt in prompts]
    padded = [(prompt, [*tokens[:64], *[0] * 96]) for prompt, tokens in answers]
    oracle = load_oracle(tmp_path)
    expect_part(oracle, Timed(1.0, 1, 1, answers), rng)
    with pytest.raises(Failure, match=r"Token 6[4-9] of the timed answer to prompt \d is 0; the reference prefers"):
        expect_part(oracle, Timed(1.0, 1, 1, padded), rng)


def test_any_token_of_a_long_answer_may_be_the_last_that_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[tuple[int, int]] = []
    monkeypatch.setattr(
        workloads, "expect_stream", lambda oracle, prompt, tokens, name: judged.append((len(prompt), len(tokens)))
    )
    rng = np.random.default_rng(0)
    for _ in range(200):
        expect_part(cast(Any, None), Timed(1.0, 1, 1, [([1] * 100, [2] * 1000)] * 3), rng)
    assert len(judged) == 200
    counts = [count for _, count in judged]
    assert min(counts) == 512 - 100
    assert max(counts) > 950
    assert 40 < sum(count > 700 for count in counts) < 90
    judged.clear()
    expect_part(cast(Any, None), Timed(1.0, 1, 1, [([1] * 16, [2] * 100)] * 64), rng)
    assert judged == [(16, 100)] * 5
