"""Stage 10, second part: the answer to a prompt, and its text."""

from functools import partial
from pathlib import Path

from numpy.random import Generator

from grader.checking.api import Worker, check, expect_error, require
from grader.checks.generating import Engine, expect_scripted
from grader.checks.text_streams import expect_text, finish, new_detokenizer, push, texts
from grader.oracle.references import ReferenceModel
from grader.oracle.scripted import scripted_model
from grader.oracle.streams import expect_stream

GREEDY = {"temperature": 0.0, "max_tokens": 30}
LARGEST_WINDOW = 64
"""Tokens that a Detokenizer may decode at once; the text of the check needs no more than 10."""


@check("s10.3")
def ends(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """generate ends with any end-of-sequence token, also a first one, and with none when ignore_eos is set."""
    model = scripted_model(rng, shared_folder)
    engine = Engine(worker, model.folder, model.config, 64)
    for eos in model.config.eos_token_ids:
        for steps in (3, 1):
            prompt = [*model.config.eos_token_ids, *model.prompt_for(rng, steps, 4, eos)]
            expect_scripted(engine, model, prompt, 64, **GREEDY)
            expect_scripted(engine, model, prompt, 64, temperature=0.0, max_tokens=steps)
    expect_scripted(engine, model, prompt, 64, ignore_eos=True, **GREEDY)


@check("s10.4")
def whole_characters(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """Detokenizer gives text as soon as its characters are whole, all of it, and works as little for a late token."""
    for ids in texts(tiny, rng):
        expect_text(worker, tiny, new_detokenizer(worker, tiny)[0], ids)
    expect_constant_work(worker, tiny)


def expect_constant_work(worker: Worker, tiny: ReferenceModel) -> None:
    """The work for a token does not grow with the text, and two Detokenizers share nothing."""
    ids = tiny.reference("unusual_bytes").ids.tolist()
    (one, decode), (other, _) = (new_detokenizer(worker, tiny) for _ in range(2))
    for token in ids * (1000 // len(ids)):
        push(worker, one, token)
    longest = worker.call(decode.method("longest"))
    told = f"push decoded {longest} tokens at once; keep only those whose text is not final, and a few before them."
    require(type(longest) is int and longest <= LARGEST_WINDOW, told, "TOO_SLOW")
    require(finish(worker, other) == "", "A Detokenizer that got no token has the text of another.")
    expect_text(worker, tiny, other, ids)


@check("s10.8")
def limits(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """generate ends at max_tokens, 0 and 1 too, and where the cache is full; a prompt that fills it is refused."""
    model = scripted_model(rng, shared_folder)
    engine = Engine(worker, model.folder, model.config, 12)
    for max_tokens in (0, 1, 2, 7):
        prompt = model.prompt_for(rng, 8, 5)
        expect_scripted(engine, model, prompt, 12, temperature=0.0, max_tokens=max_tokens)
    for length in (11, 12, 9, 13, 1):
        prompt = model.prompt_for(rng, 20, length)
        if length < 12:
            expect_scripted(engine, model, prompt, 12, **GREEDY)
        else:
            expect_error(partial(engine.answer, prompt, **GREEDY), "RequestTooLong")


@check("s10.9")
def seeded_answers(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """generate draws with the parameters it gets: a seed repeats its answer, other seeds and no seed give others."""
    model = scripted_model(rng, shared_folder)
    engine = Engine(worker, model.folder, model.config, 64)
    prompt, seed = model.prompt(rng, 3), int(rng.integers(2**32))
    flat = {"temperature": 1e5, "ignore_eos": True, "max_tokens": 24}  # each of 1,024 tokens is as probable
    answers = [tuple(engine.answer(prompt, seed=drawn, **flat)[0]) for drawn in (seed, seed, seed + 1, None, None)]
    require(answers[0] == answers[1], f"Seed {seed} gave {list(answers[0])} and then {list(answers[1])}.")
    require(len(set(answers)) == 4, f"Two seeds, or two requests without one, gave the same: {answers}.")
    require(len(set(answers[0])) > 12, f"The answer {list(answers[0])} repeats itself: one generator draws all tokens.")
    expect_scripted(engine, model, prompt, 64, temperature=1.0, max_tokens=9)
    expect_scripted(engine, model, prompt, 64, temperature=1e5, top_k=1, max_tokens=9)
    expect_scripted(engine, model, prompt, 64, temperature=50.0, top_p=1e-4, max_tokens=9)


@check("s10.10")
def greedy_text(worker: Worker, tiny: ReferenceModel) -> None:
    """At temperature 0 the stored model goes on as its reference does, prompt after prompt."""
    engine = Engine(worker, tiny.folder, tiny.config, 64)
    prompts = sorted(tiny.references, key=lambda reference: len(reference.ids))[:4]
    for prompt in (*prompts[::-1], prompts[-1]):
        ids = prompt.ids.tolist()
        tokens, _ = engine.answer(ids, temperature=0.0, max_tokens=12, ignore_eos=True)
        require(len(tokens) == min(12, 64 - len(ids)), f"generate returned {len(tokens)} tokens of max_tokens = 12.")
        expect_stream(tiny.oracle, ids, tokens, f"the answer to {prompt.name}")
