"""Stage 10, first part: the probabilities of the next token, and the draw."""

from functools import partial

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader.checking.api import Worker, check, expect_error, property_check, require
from grader.checking.draws import Array, floats
from grader.checks.generating import draw, expect_cut, expect_frequencies, expect_probabilities, new_generator


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


@check("s10.5")
def ties_and_extremes(worker: Worker, rng: Generator) -> None:
    """Exactly top_k tokens stay, the lowest of equal ones; top_p keeps the one that reaches it; no NaN comes up."""
    for count, top_p, kept in ((4, 0.5, 2), (8, 0.75, 6), (4, 0.25, 1), (4, 0.26, 2), (16, 1 / 16, 1)):
        logits = np.full(count + 3, -np.inf, np.float32)
        logits[rng.permutation(count + 3)[:count]] = 3.5
        expect_probabilities(worker, logits, top_p=top_p)
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
            expect_error(partial(expect_probabilities, worker, logits, temperature=temperature), "ValueError")


@check("s10.6")
@property_check(
    size=st.integers(1, 60),
    spread=st.sampled_from([0.5, 2.0, 20.0]),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.5]),
    top_k=st.integers(0, 70),
    rounded=st.booleans(),
)
def property_of_parameters(
    worker: Worker, rng: Generator, size: int, spread: float, temperature: float, top_k: int, rounded: bool
) -> None:
    """probabilities is right for any vocabulary, temperature, top_k and top_p."""
    logits = floats(rng, size, scale=spread)
    expect_cut(worker, rng, np.round(logits) if rounded else logits, temperature, top_k)


@check("s10.7")
def seeds(worker: Worker, rng: Generator) -> None:
    """sample repeats with the generator's seed; at temperature 0 it takes the largest logit and no random number."""
    logits, seed = floats(rng, 1000), int(rng.integers(2**32))
    first, again = (new_generator(worker, seed) for _ in range(2))
    drawn = [[draw(worker, logits, generator) for _ in range(20)] for generator in (first, again)]
    require(drawn[0] == drawn[1], f"Two generators of one seed gave {drawn[0]} and {drawn[1]}.")
    require(len(set(drawn[0])) > 5, f"One generator gave {drawn[0]}: each call must take a new number from it.")
    logits[[400, 900]] = 10
    untouched = new_generator(worker, seed)
    for fields in ({}, {"top_k": 2}, {"top_p": 0.9}):
        token = draw(worker, logits, untouched, temperature=0.0, **fields)
        require(token == 400, f"sample returned {token} at temperature 0; the largest logits are 400 and 900.")
    following = worker.call(untouched.method("random"))
    require(following == np.random.default_rng(seed).random(), "sample took a random number at temperature 0.")
