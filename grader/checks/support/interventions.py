"""Shows that answers come from a submission's kernels: one result is changed on the device, and the answer must follow.

A call of the kind that a check judges is repeated on the emulator, which changes a row that a kernel or a product of
the call wrote. The same row is changed in the reference's forward pass, whose answer must then be the submission's. An
engine that computes its answer elsewhere does not notice the change; what one computes beside its answer are rows that
the reference does not have.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from given.config import LlamaConfig
from numpy.random import Generator

from grader.checking.api import Failure, Worker, expect_rows
from grader.checking.draws import Array
from grader.checks.support.cached_model import CachedModel
from grader.checks.support.llm import greedy, new_llm
from grader.checks.support.s10 import GenerationRun
from grader.judge.compare import ROW_FACTOR, row_errors
from grader.observe.device_activity import ChangedRow
from grader.oracle.intervention import Pass, find_changes, run_pass
from grader.oracle.llama import LlamaOracle
from grader.oracle.references import ReferenceModel
from grader.oracle.scripted import scripted_model
from grader.oracle.streams import TokenStream, expect_tokens
from grader.oracle.variants import variant_model
from grader.traces.drive import drive

FOLLOWED = 3
"""Changes that an answer must follow."""
MISSES = 1
"""Changes that an answer does not follow, at most, or of rows that the reference does not have."""
DRAWS = 40
SMALLEST_UNIT = 2.0**-8
"""The logits of scripted models are exact in bf16."""
EFFECT = 2.0
"""A change counts when some row of the answer moves by this many times what a row may be off."""
SHORTEST, DISTINCT = 14, 10
"""This many tokens of a prompt, of which so many are different: equal ones have equal rows in the first layer."""
NEW_TOKENS = 3
GREEDY: Mapping[str, Any] = {"temperature": 0.0, "ignore_eos": True}


@dataclass(frozen=True)
class Answer:
    """What a call returned for one sequence: logits of some of its tokens, or tokens that follow it."""

    ids: Sequence[int]
    """All tokens that were computed."""
    logits: Array | None = None
    """[n, vocabulary], of the last n tokens."""
    tokens: Sequence[int] = ()
    """Greedy tokens; all but the last are the last of `ids`."""

    @property
    def rows(self) -> slice:
        return slice(-(len(self.tokens) if self.logits is None else len(self.logits)), None)

    def judge(self, seen: Pass) -> None:
        """Raise Failure unless the answer is right by this pass."""
        exact, rounded = seen.float32.logits[self.rows], seen.bf16.logits[self.rows]
        if self.logits is not None:
            expect_rows(self.logits, exact, rounded)
            return
        unit = max(SMALLEST_UNIT, float(np.median(row_errors(seen.bf16.logits, seen.float32.logits))))
        expect_tokens(TokenStream("the answer", self.ids, self.tokens, exact, unit))

    def differs(self, seen: Pass, changed: Pass) -> bool:
        """Whether a right answer by one pass is wrong by the other."""
        if self.logits is None:
            return bool((seen.float32.logits.argmax(1) != changed.float32.logits.argmax(1))[self.rows].any())
        unit = row_errors(changed.bf16.logits, changed.float32.logits)
        moved = row_errors(seen.float32.logits, changed.float32.logits)
        return bool((moved > EFFECT * ROW_FACTOR * np.maximum(unit, np.median(unit)))[self.rows].any())


Call = Callable[[], list[Answer]]
"""Calls the submission, with the same inputs each time."""


def expect_following(emulator: Worker, rng: Generator, call: Call, oracle: LlamaOracle) -> None:
    """Raise Failure unless the answers of a call follow what is changed in it."""
    with emulator.changing(-1, 0.0) as seen:
        for answer in call():
            answer.judge(run_pass(oracle, answer.ids))
    followed = missed = 0
    for _ in range(DRAWS):
        if followed == FOLLOWED:
            return
        with emulator.changing(int(rng.integers(max(seen.outputs, 1))), float(rng.random())) as watched:
            answers = call()
        outcome = _follows(answers, watched.changed, oracle)
        followed += outcome is True
        missed += outcome is False
        if missed > MISSES or watched.changed is None:
            break
    raise Failure("RUNTIME_ERROR", _message(watched.changed))


def _follows(answers: Sequence[Answer], changed: ChangedRow | None, oracle: LlamaOracle) -> bool | None:
    """Whether the answers follow a change; None when it may be one that makes no difference to a right one."""
    if changed is None or not np.isfinite([changed.before, changed.after]).all():
        return False
    if (changed.before == changed.after).all():
        return None
    passes = [run_pass(oracle, answer.ids) for answer in answers]
    found = [
        (number, changes)
        for number, seen in enumerate(passes)
        for changes in find_changes(seen, changed.before, changed.after)
    ]
    may_be_without_effect = False
    for number, changes in found:
        after = run_pass(oracle, answers[number].ids, changes)
        if not answers[number].differs(passes[number], after):
            may_be_without_effect = True
        elif _all_right(answers, [*passes[:number], after, *passes[number + 1 :]]):
            return True
    return None if may_be_without_effect else False


def _all_right(answers: Iterable[Answer], passes: Iterable[Pass]) -> bool:
    try:
        for answer, seen in zip(answers, passes, strict=True):
            answer.judge(seen)
    except Failure:
        return False
    return True


def _message(changed: ChangedRow | None) -> str:
    told = "The answer does not come from your kernels: "
    if changed is None:
        return f"{told}it stays right although none of them, and no matrix product, is launched for it."
    what = "a matrix product" if changed.name == "product" else f"the kernel {changed.name}"
    where = f"row {changed.row} of the {changed.rows} that {what} wrote"
    return f"{told}when {where} was changed on the device, the answer did not change as it must."


# What is called


@dataclass(frozen=True)
class Subject:
    """A model in a folder, its reference, and what draws prompts of a length for it."""

    folder: Path
    oracle: LlamaOracle
    draw: Callable[[Generator, int], list[int]]

    @property
    def config(self) -> LlamaConfig:
        return self.oracle.config

    def prompt(self, rng: Generator) -> list[int]:
        return self.draw(rng, int(rng.integers(8, 14)))


def stored(rng: Generator, tiny: ReferenceModel, folder: Path) -> Subject:
    """The stored model, with the beginnings of its prompts."""
    prompts = [
        prompt.ids.tolist() for prompt in tiny.references if len(set(prompt.ids[:SHORTEST].tolist())) >= DISTINCT
    ]
    return Subject(tiny.folder, tiny.oracle, lambda rng, length: prompts[int(rng.integers(len(prompts)))][:length])


def variant(rng: Generator, tiny: ReferenceModel, folder: Path) -> Subject:
    """A model of other sizes."""
    model = variant_model(rng, folder)
    size = model.config.vocab_size
    return Subject(folder, model.oracle, lambda rng, length: rng.integers(size, size=length).tolist())


def scripted(rng: Generator, tiny: ReferenceModel, folder: Path) -> Subject:
    """A model whose answers are known exactly."""
    model = scripted_model(rng, folder)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    return Subject(folder, LlamaOracle(model.config, weights), model.prompt)


def forward(emulator: Worker, rng: Generator, model: Subject) -> Call:
    prompt = model.prompt(rng)
    llama = emulator.call("model.LlamaModel", str(model.folder), keep=True)
    return lambda: [Answer(prompt, emulator.call(llama.method("forward"), prompt))]


def walk(emulator: Worker, rng: Generator, model: Subject) -> Call:
    """Prefill of most of a prompt, decode of its last two tokens."""
    prompt = model.prompt(rng)
    cached = CachedModel(emulator, model.folder, model.config, 1, len(prompt))
    return lambda: [Answer(prompt, cached.walk(prompt, len(prompt) - 2))]


def generation(emulator: Worker, rng: Generator, model: Subject) -> Call:
    prompt = model.prompt(rng)
    engine = GenerationRun(emulator, model.folder, model.config, len(prompt) + NEW_TOKENS)
    return lambda: [_continued(prompt, engine.answer(prompt, max_tokens=NEW_TOKENS, **GREEDY)[0])]


def batch(emulator: Worker, rng: Generator, model: Subject) -> Call:
    """Prefill of two packed prompts, decode of their last tokens."""
    prompts = [model.prompt(rng), model.prompt(rng)]
    cached = CachedModel(emulator, model.folder, model.config, 2, 40)

    def call() -> list[Answer]:
        steps = [cached.prefill_batch([ids[:-1] for ids in prompts]), cached.decode_batch([ids[-1] for ids in prompts])]
        return [Answer(ids, np.stack([step[row] for step in steps])) for row, ids in enumerate(prompts)]

    return call


def serving(emulator: Worker, rng: Generator, model: Subject) -> Call:
    """Two requests, served together."""
    trace = [greedy(name, model.prompt(rng), NEW_TOKENS) for name in ("first", "second")]
    llm = new_llm(emulator, model.folder, max_num_seqs=2, max_model_len=64)

    def call() -> list[Answer]:
        seen = drive(emulator, llm, trace, model.config.vocab_size)
        return [_continued(request.prompt, seen.tokens[request.id]) for request in trace]

    return call


def _continued(prompt: Sequence[int], tokens: Sequence[int]) -> Answer:
    return Answer([*prompt, *tokens[:-1]], tokens=tokens)


CALLS: Mapping[str, Callable[[Worker, Generator, Subject], Call]] = {
    "s08": forward,
    "s09": walk,
    "s10": generation,
    "s12": batch,
    "s13": serving,
    "s16": serving,
}
"""By stage, the call whose answers its checks judge."""
ON_STORED = {"s10.10", "s13.3", "s13.4", "s16.1", "s16.3", "s16.7", "s16.8"}
"""Checks of stages 10, 13 and 16 on the stored model; the others have scripted ones."""
OTHERWISE = {"s09.3"}
"""Checks that judge no model's answers."""


def subject_of(check_id: str) -> Callable[..., Subject] | None:
    """On which model calls of the kind that a check judges are made; None when it judges no model's answers."""
    stage = check_id.partition(".")[0]
    if stage not in CALLS or check_id in OTHERWISE:
        return None
    if check_id == "s08.7":
        return variant
    return scripted if stage in ("s10", "s13", "s16") and check_id not in ON_STORED else stored


def expect_own_answers(
    stage: str,
    subject: Callable[..., Subject],
    emulator: Worker,
    rng: Generator,
    tiny: ReferenceModel,
) -> None:
    """Raise Failure unless the answers of a stage's calls on this model come from the submission's kernels."""
    with tempfile.TemporaryDirectory(prefix="pagedlab-") as folder:
        model = subject(rng, tiny, Path(folder))
        expect_following(emulator, rng, CALLS[stage](emulator, rng, model), model.oracle)
