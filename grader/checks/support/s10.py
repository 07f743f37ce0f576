"""Calls of a submission's sampling, generation and Detokenizer, and how what they return is judged."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from given.config import LlamaConfig
from given.requests import SamplingParams
from given.tokenizer import Tokenizer
from numpy.random import Generator

from grader import oracle
from grader.checking.api import Failure, Handle, Sampling, Worker, expect, require
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
    try:
        expect(got, oracle.probabilities(logits, params), "probabilities")
    except Failure as failure:
        failure.message += f" Right are those of {_shown(params)}"
        if mistake := _mistake(logits, params, got):
            failure.evidence["hint"] = mistake
        raise


def _shown(params: SamplingParams) -> str:
    return f"temperature {params.temperature:g}, top_k {params.top_k}, top_p {params.top_p:.17g}."


def _mistake(logits: Array, params: SamplingParams, got: Any) -> str | None:
    """What was done instead, where exactly that gives these probabilities."""
    right = oracle.probabilities(logits, params).values
    if not isinstance(got, np.ndarray) or got.shape != right.shape or not np.isfinite(got).all():
        return None

    def of(**changed: Any) -> Array:
        return oracle.probabilities(logits, replace(params, **changed)).values

    cut, kept = of(top_k=0), np.flatnonzero(of(top_p=1.0))
    guesses: dict[str, Array] = {
        "the temperature is not applied": of(temperature=1.0),
        "the logits are multiplied by the temperature": of(temperature=1 / (params.temperature or 1)),
        "top_k is not applied": cut,
        "top_p is not applied": of(top_p=1.0),
        "top_p comes before top_k": _normalised(np.where(np.isin(np.arange(len(cut)), kept), cut, 0)),
        "neither top_k nor top_p is applied": of(top_k=0, top_p=1.0),
        "what stays is not divided by its sum": np.where(right > 0, of(top_k=0, top_p=1.0), 0),
        "tokens as probable as the last of top_k stay too": _normalised(
            np.where(logits >= logits[kept].min(), of(top_k=0, top_p=1.0), 0)
        ),
        "of equal logits the higher ids stay": oracle.probabilities(logits[::-1], params).values[::-1],
    }
    found = [told for told, values in guesses.items() if np.allclose(got, values, 1e-9, 1e-12)]
    more = np.count_nonzero(got) - np.count_nonzero(right)
    if not found and abs(more) == 1:
        return (
            f"One token too {'many' if more > 0 else 'few'} stays: the one that reaches top_p is the last that stays."
        )
    return f"These are the numbers where {', or where '.join(found)}." if found else None


def _normalised(weights: Array) -> Array:
    return weights / max(weights.sum(), 1e-300)


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
        told = f"Token {token} has probability {share:.3g}; {counts[token]} of {DRAWS} draws took it. Right are about"
        told += f" {DRAWS * share:.0f}: {_shown(SamplingParams(**fields))}"
        require(abs(counts[token] - DRAWS * share) <= bound, told)


def expect_end_draws(worker: Worker, logits: Array) -> None:
    """The least and the largest random number draw a possible token too, the first and the last one."""
    possible = np.flatnonzero(np.arange(len(logits)) % 3 == 1)
    barred = np.full_like(logits, -np.inf)
    barred[possible] = logits[possible]
    for largest, want in ((False, possible[0]), (True, possible[-1])):
        generator = worker.call("grader.checking.probes:generator_before", largest, keep=True)
        token = worker.call("sampling.sample", barred, Sampling(), generator)
        number = "1 - 2^-53, the largest below 1" if largest else "0"
        told = f"Where the generator's random() is {number}, sample returned {token} of {len(logits)} tokens; it must"
        told += f" return {want}, the {'last' if largest else 'first'} one whose probability is above 0"
        require(
            type(token) is int and token == want, f"{told}: take the first id whose running sum exceeds the number."
        )


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
    name = f"{len(prompt)} tokens with a cache of {max_length} and {Sampling(**fields)}"
    expect_answers({name: engine.answer(prompt, **fields)}, {name: want})


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
        told = f"After {count} tokens of {len(ids)}, the last of them {ids[max(0, count - 4) : count]}, the pieces are"
        told += f" {shown!r:.200}; the text is {text!r:.200}."
        hint = "A piece was shown too early, twice, or in a wrong place."
        hint += " Or do two Detokenizers share a list?" if count == 1 else ""
        require(text.startswith(shown), told, hint=hint)
        so_far = tokenizer.decode(ids[:count])
        late = so_far != shown and not so_far.endswith(REPLACEMENT)
        require(not late, told, hint="Text was held back although its characters are whole.")
    shown += finish(worker, detokenizer)
    lost = text.startswith(shown)
    rest = f"finish did not return the rest, {text[len(shown) :]!r:.60}." if lost and shown != text else None
    told = f"All pieces of {len(ids)} tokens, with finish, are {shown!r:.200}; the text is {text!r:.200}."
    require(shown == text, told, hint=rest)
