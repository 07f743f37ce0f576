"""Calls of a submission's sampling and generation, and how what they return is judged."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from given.config import LlamaConfig
from given.requests import SamplingParams
from numpy.random import Generator

from grader import oracle
from grader.answers import Answer, expect_answers, read_completions
from grader.checking.api import Handle, Sampling, Worker, expect, require
from grader.checking.draws import Array
from grader.oracle.sampling import draw_top_p
from grader.oracle.scripted import ScriptedModel

DRAWS = 400
DEVIATIONS = 5
"""Standard deviations by which a frequency may be off: right draws exceed it once in a million runs."""


def expect_probabilities(worker: Worker, logits: Array, **fields: Any) -> None:
    params = SamplingParams(**fields)
    got = worker.call("sampling.probabilities", logits, params)
    expect(got, oracle.probabilities(logits, params), "probabilities")


def expect_cut(worker: Worker, rng: Generator, logits: Array, temperature: float, top_k: int) -> None:
    """With a top_p that cuts off some of the tokens, in whatever order the sums are taken."""
    top_p = draw_top_p(rng, logits, SamplingParams(temperature=temperature, top_k=top_k))
    expect_probabilities(worker, logits, temperature=temperature, top_k=top_k, top_p=top_p)


def draw(worker: Worker, logits: Array, generator: Handle, **fields: Any) -> int:
    token = worker.call("sampling.sample", logits, Sampling(**fields), generator)
    require(type(token) is int, f"sample must return an int, not a {type(token).__name__}.", "INCORRECT_DTYPE")
    require(0 <= token < len(logits), f"sample returned {token}; the vocabulary is 0 … {len(logits) - 1}.")
    return int(token)


def expect_frequencies(worker: Worker, logits: Array, generator: Handle, **fields: Any) -> None:
    """DRAWS draws take each token about as often as its probability says."""
    shares = oracle.probabilities(logits, SamplingParams(**fields)).values
    counts = Counter(draw(worker, logits, generator, **fields) for _ in range(DRAWS))
    for token, share in enumerate(shares):
        bound = DEVIATIONS * np.sqrt(DRAWS * share * (1 - share)) + (1 if share else 0)
        told = f"Token {token} has probability {share:.3g}; {counts[token]} of {DRAWS} draws took it."
        require(abs(counts[token] - DRAWS * share) <= bound, told)


def new_generator(worker: Worker, seed: int) -> Handle:
    return worker.call("numpy.random:default_rng", seed, keep=True)


class Engine:
    """The submission's model, with one sequence of a cache."""

    def __init__(self, worker: Worker, folder: Path, config: LlamaConfig, max_length: int) -> None:
        self.worker, self.config = worker, config
        self.model = worker.call("model.LlamaModel", str(folder), keep=True)
        self.cache = worker.call("kv_cache.KVCache", config, 1, max_length, keep=True)

    def answer(self, prompt: list[int], **fields: Any) -> Answer:
        result = self.worker.call("generation.generate", self.model, self.cache, prompt, Sampling(**fields))
        right = isinstance(result, tuple | list) and len(result) == 2
        require(right, "generate must return (new tokens, finish reason).", "INCORRECT_DTYPE")
        (tokens, _, reason), *_ = read_completions([(result[0], None, result[1])], 1, self.config.vocab_size)
        return tokens, reason


def expect_scripted(engine: Engine, model: ScriptedModel, prompt: list[int], max_length: int, **fields: Any) -> None:
    """The scripted model has one right answer, also where it is drawn: fields may set a temperature up to 1."""
    params = SamplingParams(**fields)
    want = model.stream(prompt, params.max_tokens, ignore_eos=params.ignore_eos, max_length=max_length)
    expect_answers({"the prompt": engine.answer(prompt, **fields)}, {"the prompt": want})
