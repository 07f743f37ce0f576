"""Calls of a submission's sampling, generation and Detokenizer, and how what they return is judged."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from given.config import LlamaConfig
from given.requests import SamplingParams
from given.tokenizer import Tokenizer
from numpy.random import Generator

from grader import oracle
from grader.checking.api import Handle, Sampling, Worker, expect, require
from grader.checking.draws import Array
from grader.oracle.references import ReferenceModel
from grader.oracle.sampling import draw_top_p
from grader.oracle.scripted import ScriptedModel
from grader.throughput.workloads import new_runner
from grader.traces.answers import Answer, expect_answers, read_completions

DRAWS = 400
DEVIATIONS = 5
"""Standard deviations by which a frequency may be off: right draws exceed it once in a million runs."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
TEXTS = (
    "Plain words, and more of them.",
    "東京は日本の首都です。你好，世界！",
    "naïve café: Ünïcödé, Ελληνικά, русский, ไทย",
    "🙂🙃 👩‍🔬👨‍👩‍👧‍👦 🇫🇷 e\u0301 🏳️‍🌈",
    "  spaces\n\tand \ufffd itself  ",
)


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


class GenerationRun:
    """The submission's runner of a model, with one slot of a cache."""

    def __init__(self, worker: Worker, folder: Path, config: LlamaConfig, max_length: int) -> None:
        self.worker, self.config = worker, config
        self.runner = new_runner(worker, folder)
        self.cache = worker.call("kv_cache.KVCache", config, 1, max_length, keep=True)

    def answer(self, prompt: list[int], **fields: Any) -> Answer:
        result = self.worker.call("generation.generate", self.runner, self.cache, prompt, Sampling(**fields))
        right = isinstance(result, tuple | list) and len(result) == 2
        require(right, "generate must return (new tokens, finish reason).", "INCORRECT_DTYPE")
        (tokens, _, reason), *_ = read_completions([(result[0], None, result[1])], 1, self.config.vocab_size)
        return tokens, reason


def expect_scripted(
    engine: GenerationRun, model: ScriptedModel, prompt: list[int], max_length: int, **fields: Any
) -> None:
    """The scripted model has one right answer, also where it is drawn: fields may set a temperature up to 1."""
    params = SamplingParams(**fields)
    want = model.stream(prompt, params.max_tokens, ignore_eos=params.ignore_eos, max_length=max_length)
    expect_answers({"the prompt": engine.answer(prompt, **fields)}, {"the prompt": want})


def texts(tiny: ReferenceModel, rng: Generator) -> list[list[int]]:
    """TEXTS as tokens, cut off within a character as well, and random tokens, whose bytes need not be characters."""
    tokenizer = Tokenizer.from_folder(tiny.folder)
    whole = [tokenizer.encode(text) for text in TEXTS]
    drawn = [rng.integers(tiny.config.vocab_size, size=size).tolist() for size in (1, 60)]
    return [[], *whole, *(ids[:-1] for ids in whole[1:4]), *drawn]


def new_detokenizer(worker: Worker, tiny: ReferenceModel) -> tuple[Handle, Handle]:
    """(a Detokenizer, the counted decode function that it has)."""
    decode = worker.call("grader.checking.probes:CountedDecode", str(tiny.folder), keep=True)
    return worker.call("detokenizer.Detokenizer", decode, keep=True), decode


def push(worker: Worker, detokenizer: Handle, token: int) -> str:
    piece = worker.call(detokenizer.method("push"), token)
    require(isinstance(piece, str), f"push must return text, not {piece!r:.60}.", "INCORRECT_DTYPE")
    return str(piece)


def finish(worker: Worker, detokenizer: Handle) -> str:
    piece = worker.call(detokenizer.method("finish"))
    require(isinstance(piece, str), f"finish must return text, not {piece!r:.60}.", "INCORRECT_DTYPE")
    return str(piece)


def expect_text(worker: Worker, tiny: ReferenceModel, detokenizer: Handle, ids: list[int]) -> None:
    """Push all tokens: what is whole must be shown at once, and nothing that a later token would change."""
    tokenizer = Tokenizer.from_folder(tiny.folder)
    text, shown = tokenizer.decode(ids), ""
    for count, token in enumerate(ids, 1):
        shown += push(worker, detokenizer, token)
        told = f"After {count} of the tokens {ids}, the pieces are {shown!r:.200}; the text is {text!r:.200}."
        require(text.startswith(shown), told, hint="A piece was shown too early, twice, or in a wrong place.")
        so_far = tokenizer.decode(ids[:count])
        late = so_far != shown and not so_far.endswith(REPLACEMENT)
        require(not late, told, hint="Text was held back although its characters are whole.")
    shown += finish(worker, detokenizer)
    require(shown == text, f"All pieces of {ids} are {shown!r:.200}; the text is {text!r:.200}.")
