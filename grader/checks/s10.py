"""Stage 10: the probabilities of the next token and the draw, the answer to a prompt, and its text."""

from functools import partial
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader.checking.api import Worker, check, expect_error, property_check, require
from grader.checking.draws import Array, floats
from grader.checks.support.s10 import (
    GenerationRun,
    draw,
    expect_cut,
    expect_end_draws,
    expect_frequencies,
    expect_probabilities,
    expect_scripted,
    expect_text,
    finish,
    new_detokenizer,
    new_generator,
    push,
    texts,
)
from grader.oracle.references import ReferenceModel
from grader.oracle.scripted import scripted_model
from grader.oracle.streams import expect_stream

GREEDY = {"temperature": 0.0, "max_tokens": 30}
SMALLEST, LARGEST_BELOW_1 = 5e-324, 1 - 2.0**-53
LARGEST_WINDOW = 64
"""Tokens that a Detokenizer may decode at once; the text of the check needs no more than 10."""


@check("s10.1")
def vocabularies(worker: Worker, rng: Generator) -> None:
    """probabilities is right for vocabularies of 1 to 128,256 tokens: temperature, then top_k, then top_p."""
    for size, scale in ((7, 1), (1, 1), (1000, 3), (128_256, 3)):
        logits = floats(rng, size, scale=scale)
        for temperature in (1.0, 0.6, 2.5):
            expect_probabilities(worker, logits, temperature=temperature)
            expect_cut(worker, rng, logits, temperature, 0)
        for top_k in (1, size // 2 + 1, size, size + 3):
            expect_probabilities(worker, logits, top_k=top_k)
            expect_cut(worker, rng, logits, 0.8, top_k)
        expect_probabilities(worker, logits, temperature=0, top_k=3, top_p=0.5)


@check("s10.2")
def frequencies(worker: Worker, rng: Generator) -> None:
    """sample draws each token as often as probabilities says, and never one whose probability is 0."""
    logits = floats(rng, 7, scale=1.5)
    logits[[0, 3, 6]] = -np.inf, 2.0, -np.inf
    generator = new_generator(worker, int(rng.integers(2**32)))
    expect_frequencies(worker, logits, generator, temperature=1.7)
    expect_frequencies(worker, logits, generator, temperature=0.9, top_k=3)
    for size in (7, 50, 1000):
        expect_end_draws(worker, floats(rng, size, scale=1.5))


@check("s10.3")
def ends(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """generate ends with any end-of-sequence token, also a first one, and with none when ignore_eos is set."""
    model = scripted_model(rng, shared_folder)
    engine = GenerationRun(worker, model.folder, model.config, 64)
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
    told = f"push decoded {longest} tokens at once, of {1000 // len(ids) * len(ids)}; at most {LARGEST_WINDOW} are "
    told += "allowed: keep those whose text is not final, and a few before them."
    require(type(longest) is int and longest <= LARGEST_WINDOW, told, "TOO_SLOW")
    text = finish(worker, other)
    told = f"finish of a Detokenizer that got no token returned {text!r:.80}: do two Detokenizers share a list?"
    require(text == "", told)
    expect_text(worker, tiny, other, ids)


@check("s10.5")
def ties_and_extremes(worker: Worker, rng: Generator) -> None:
    """Exactly top_k tokens stay, the lowest of equal ones; top_p keeps the one that reaches it; no NaN comes up."""
    for count, top_p, kept in ((4, 0.5, 2), (8, 0.75, 6), (4, 0.25, 1), (4, 0.26, 2), (16, 1 / 16, 1)):
        logits = np.full(count + 3, -np.inf, np.float32)
        logits[rng.permutation(count + 3)[:count]] = 3.5
        for share in (top_p, SMALLEST, LARGEST_BELOW_1):
            expect_probabilities(worker, logits, top_p=share)
        expect_probabilities(worker, logits, top_k=kept)
    expect_probabilities(worker, np.zeros(16, np.float32), top_k=8, top_p=0.5)
    for size in (5, 40, 2000):
        rounded: Array = np.round(floats(rng, size))
        for top_k in (1, 2, size // 3, size - 1):
            expect_probabilities(worker, rounded, top_k=top_k)
            expect_cut(worker, rng, rounded, 1.5, top_k)
        expect_probabilities(worker, rounded, temperature=0)
    expect_extremes(worker, rng)


def expect_extremes(worker: Worker, rng: Generator) -> None:
    """±10,000, −infinity and any temperature; what no token follows from is refused."""
    for size in (2, 50, 3000):
        logits = floats(rng, size, scale=1e4)
        logits[rng.integers(size, size=size // 3)] = -np.inf
        for temperature in (1e-30, 1e-3, 1.0, 1e4):
            expect_probabilities(worker, logits, temperature=temperature)
            expect_probabilities(worker, logits, temperature=temperature, top_k=2, top_p=0.9)
    expect_probabilities(worker, np.array([-np.inf, -1e4, -np.inf], np.float32), top_k=3)
    for value in (np.nan, np.inf, -np.inf):
        logits = np.array([value, -np.inf, value], np.float32)
        for temperature in (0.0, 1.0):
            called = f"probabilities of the logits {logits.tolist()} at temperature {temperature}"
            call = partial(expect_probabilities, worker, logits, temperature=temperature)
            expect_error(call, "ValueError", called=called, because="one is NaN, or the largest is infinite")


@check("s10.6")
@property_check(
    vocab_size=st.integers(1, 60),
    scale_of_logits=st.sampled_from([0.5, 2.0, 20.0]),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.5]),
    top_k=st.integers(0, 70),
    whole_logits=st.booleans(),
)
def property_of_parameters(
    worker: Worker,
    rng: Generator,
    vocab_size: int,
    scale_of_logits: float,
    temperature: float,
    top_k: int,
    whole_logits: bool,
) -> None:
    """probabilities is right for any vocabulary, temperature, top_k and top_p."""
    logits = floats(rng, vocab_size, scale=scale_of_logits)
    expect_cut(worker, rng, np.round(logits) if whole_logits else logits, temperature, top_k)


@check("s10.7")
def seeds(worker: Worker, rng: Generator) -> None:
    """sample repeats with the generator's seed; at temperature 0 it takes the largest logit and no random number."""
    logits, seed = floats(rng, 1000), int(rng.integers(2**32))
    first, again = (new_generator(worker, seed) for _ in range(2))
    drawn = [[draw(worker, logits, generator) for _ in range(20)] for generator in (first, again)]
    told = f"With two generators of one seed sample returned {drawn[0]} and {drawn[1]}: take the random number from the"
    require(drawn[0] == drawn[1], f"{told} generator that you are given, and from no other.")
    told = f"With one generator sample returned {drawn[0]}: each call must take a new number from it."
    require(len(set(drawn[0])) > 5, told)
    logits[[400, 900]] = 10
    untouched = new_generator(worker, seed)
    for fields in ({}, {"top_k": 2}, {"top_p": 0.9}):
        token = draw(worker, logits, untouched, temperature=0.0, **fields)
        told = (
            f"sample returned {token} at temperature 0; the largest logits are those of 400 and 900, and of equal ones"
        )
        require(token == 400, f"{told} the lowest id is right: 400.")
    following = worker.call(untouched.method("random"))
    require(
        following == np.random.default_rng(seed).random(),
        "sample took a random number at temperature 0: the largest logit needs none.",
    )


@check("s10.8")
def limits(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """generate ends at max_tokens, 0 and 1 too, and where the cache is full; a prompt that fills it is refused."""
    model = scripted_model(rng, shared_folder)
    engine = GenerationRun(worker, model.folder, model.config, 12)
    for max_tokens in (0, 1, 2, 6, 7, 8):
        prompt = model.prompt_for(rng, 7 if max_tokens == 6 else 8, 5)
        expect_scripted(engine, model, prompt, 12, temperature=0.0, max_tokens=max_tokens)
    expect_scripted(engine, model, model.prompt_for(rng, 7, 5), 12, **GREEDY)
    for length in (11, 12, 9, 13, 1):
        prompt = model.prompt_for(rng, 20, length)
        if length < 12:
            expect_scripted(engine, model, prompt, 12, **GREEDY)
        else:
            called = f"generate with a prompt of {length} tokens and a cache of 12"
            because = "there is no room for a new token"
            expect_error(partial(engine.answer, prompt, **GREEDY), "RequestTooLong", called=called, because=because)


@check("s10.9")
def seeded_answers(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """generate draws with the parameters it gets: a seed repeats its answer, other seeds and no seed give others."""
    model = scripted_model(rng, shared_folder)
    engine = GenerationRun(worker, model.folder, model.config, 64)
    prompt, seed = model.prompt(rng, 3), int(rng.integers(2**32))
    flat = {"temperature": 1e5, "ignore_eos": True, "max_tokens": 24}  # each of 1,024 tokens is as probable
    answers = [tuple(engine.answer(prompt, seed=drawn, **flat)[0]) for drawn in (seed, seed, seed + 1, None, None)]
    told = (
        f"Seed {seed} gave {list(answers[0])} and then {list(answers[1])}: each call of generate makes its generator,"
    )
    require(answers[0] == answers[1], f"{told} numpy.random.default_rng(params.seed).")
    names = [f"seed {seed}", f"seed {seed}", f"seed {seed + 1}", "no seed", "no seed again"]
    for i, j in ((0, 2), (3, 4), (0, 3), (2, 3), (0, 4), (2, 4)):
        told = (
            f"With {names[i]} and with {names[j]} generate returned the same tokens, {list(answers[i])}: the generator"
        )
        require(answers[i] != answers[j], f"{told} is numpy.random.default_rng(params.seed), where None draws a seed.")
    told = f"The answer {list(answers[0])} repeats itself, where 1,024 tokens are equally probable"
    require(len(set(answers[0])) > 12, f"{told}: make one generator for all tokens of an answer.")
    expect_scripted(engine, model, prompt, 64, temperature=1.0, max_tokens=9)
    expect_scripted(engine, model, prompt, 64, temperature=1e5, top_k=1, max_tokens=9)
    expect_scripted(engine, model, prompt, 64, temperature=50.0, top_p=1e-4, max_tokens=9)


@check("s10.10")
def greedy_text(worker: Worker, tiny: ReferenceModel) -> None:
    """At temperature 0 the stored model goes on as its reference does, prompt after prompt."""
    engine = GenerationRun(worker, tiny.folder, tiny.config, 64)
    prompts = sorted(tiny.references, key=lambda reference: len(reference.ids))[:4]
    for prompt in (*prompts[::-1], prompts[-1]):
        ids = prompt.ids.tolist()
        tokens, _ = engine.answer(ids, temperature=0.0, max_tokens=12, ignore_eos=True)
        due = min(12, 64 - len(ids))
        told = f"generate returned {len(tokens)} tokens; it must return {due}: max_tokens is 12, and a cache of 64 has"
        require(len(tokens) == due, f"{told} room for {64 - len(ids)} after the {len(ids)} of the prompt.")
        expect_stream(tiny.oracle, ids, tokens, f"the answer to {prompt.name}")
