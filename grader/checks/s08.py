"""Stage 8: the forward pass of a whole model, and argmax, which takes the next token from its logits."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import (
    BF16,
    Expected,
    Failure,
    Out,
    Worker,
    check,
    expect,
    expect_error,
    expect_rows,
    expect_success,
    require,
)
from grader.checking.draws import Array, floats
from grader.judge.compare import brackets
from grader.oracle.llama import Reference
from grader.oracle.references import ReferenceModel, variant_model
from grader.oracle.scripted import ScriptedModel, scripted_model

LONG = 256
"""Tokens after which tiny's scaled rotary frequencies matter."""


def expect_forward(worker: Worker, model: ReferenceModel, *prompts: Reference) -> None:
    llama = worker.call("model.LlamaModel", str(model.folder), keep=True)
    for prompt in prompts:
        expect_logits(worker.call(llama.method("forward"), prompt.ids.tolist()), prompt)


def expect_argmax(worker: Worker, x: Array) -> None:
    expect(worker.launch("argmax", Out(len(x), np.int32), x), oracle.argmax(x))


def expect_logits(logits: Any, prompt: Reference) -> None:
    """Raise Failure unless `logits`, [tokens, vocabulary], are right in the rows that have a reference."""
    if prompt.last:
        wanted = (len(prompt.ids), prompt.float32.logits.shape[1])
        found = getattr(logits, "shape", ())
        require(
            found == wanted, f"logits has shape {brackets(found)}; it must be {brackets(wanted)}.", "INCORRECT_SHAPE"
        )
        logits = logits[prompt.rows]
    expect_rows(logits, prompt.float32.logits, prompt.bf16.logits)


@check("s08.1")
def argmax_rows(worker: Worker, rng: Generator) -> None:
    """argmax finds the largest value of each row: at any length, at either end, where all are negative."""
    shapes = [(3, n) for n in (1, 2, 31, 32, 33, 255, 256, 257, 1000, 1024, 1025)]
    for rows, columns in (*shapes, (0, 5), (67, 40), (2, 128_256)):
        expect_argmax(worker, floats(rng, rows, columns) - np.float32(100))
    x = floats(rng, 4, 700)
    x[0, 0] = x[1, -1] = x[2, 350] = 1e30
    x[3, :-1] = -np.inf
    expect_argmax(worker, x)


@check("s08.2")
def short_prompts(worker: Worker, tiny: ReferenceModel) -> None:
    """forward gives the reference logits of every prompt of up to 256 tokens."""
    try:
        expect_forward(worker, tiny, *(prompt for prompt in tiny.references if len(prompt.ids) <= LONG))
    except Failure as failure:
        if "first" in failure.evidence:
            hint = failure.evidence.get("hint", "")
            failure.evidence["hint"] = f"{hint} make grade CHECK=s08.4 compares layer by layer.".strip()
        raise


@check("s08.3")
def argmax_ties(worker: Worker, rng: Generator) -> None:
    """argmax takes the lowest of several equal columns."""
    expect_argmax(worker, np.zeros((3, 300), np.float32))
    expect_argmax(worker, np.full((2, 40), -np.inf, np.float32))
    for columns in (7, 64, 300, 2000):
        expect_argmax(worker, np.round(floats(rng, 20, columns)))


@check("s08.4")
def layer_by_layer(worker: Worker, tiny: ReferenceModel) -> None:
    """forward with hidden_states returns the embedding's output and the residual stream after each block."""
    prompt = min(tiny.references, key=lambda reference: abs(len(reference.ids) - 17))
    llama = worker.call("model.LlamaModel", str(tiny.folder), keep=True)
    result = worker.call(llama.method("forward"), prompt.ids.tolist(), False, True)
    logits, states = result if isinstance(result, tuple | list) and len(result) == 2 else (result, ())
    layers = len(prompt.float32.states)
    require(
        isinstance(states, tuple | list) and len(states) == layers,
        f"forward must return the logits and a list of {layers} arrays with hidden_states=True.",
        "INCORRECT_SHAPE",
    )
    for layer, (state, exact, rounded) in enumerate(
        zip(states, prompt.float32.states, prompt.bf16.states, strict=True)
    ):
        name = f"hidden state {layer} ({f'after block {layer - 1}' if layer else 'the embedding'})"
        expect_rows(state, exact, rounded, name, BF16)
    expect_rows(logits, prompt.float32.logits, prompt.bf16.logits)


@check("s08.5")
def long_prompts(worker: Worker, tiny: ReferenceModel) -> None:
    """forward gives the reference logits of every prompt of more than 256 tokens."""
    expect_forward(worker, tiny, *(prompt for prompt in tiny.references if len(prompt.ids) > LONG))


@check("s08.6")
def last_row_only(worker: Worker, emulator: Worker, tiny: ReferenceModel, rng: Generator, shared_folder: Path) -> None:
    """forward with last_only returns one row, the last of those that it returns otherwise, and computes no other."""
    llama = worker.call("model.LlamaModel", str(tiny.folder), keep=True)
    for prompt in sorted(tiny.references, key=lambda reference: len(reference.ids))[:4]:
        logits = worker.call(llama.method("forward"), prompt.ids.tolist())
        expect_logits(logits, prompt)
        last = worker.call(llama.method("forward"), prompt.ids.tolist(), True)
        expect(last, Expected(logits[-1:], 1e-3 * np.abs(logits).max(), np.float32), "logits")
    expect_one_row_of_head(emulator, variant_model(rng, shared_folder))


def expect_one_row_of_head(emulator: Worker, model: ReferenceModel) -> None:
    """Look at the products with float32 results, vocab_size for each row, that forward makes for the last row."""
    ids, vocabulary = model.references[0].ids.tolist() * 2, model.config.vocab_size
    prompt = model.oracle.reference("a short prompt twice", ids)
    llama = emulator.call("model.LlamaModel", str(model.folder), keep=True)
    with emulator.observe() as seen:
        last = emulator.call(llama.method("forward"), ids, True)
    logits = [call.m * call.n for call in seen.gemm_calls if call.c_bytes == 4 * call.m * call.n]
    rows = [size // vocabulary for size in logits if size % vocabulary == 0]
    message = f"forward of {len(ids)} tokens with last_only must multiply one row with the head; it multiplied "
    require(rows == [1], message + (f"{sum(rows)}." if rows else "none by linear."), "INCORRECT_VALUE")
    expect_rows(last, prompt.float32.logits[-1:], prompt.bf16.logits[-1:])


@check("s08.7")
def other_models(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """forward is right for models of other sizes, head ratios and rotary bases, with a head of their own."""
    for _ in range(2):
        model = variant_model(rng, Path(tempfile.mkdtemp(dir=shared_folder)))
        expect_forward(worker, model, *model.references)


@check("s08.8")
def after_other_prompts(worker: Worker, rng: Generator, tiny: ReferenceModel, shared_folder: Path) -> None:
    """forward is right again after calls of other kinds, and refuses empty, too long and unknown prompts."""
    short, *_, long = sorted(tiny.references, key=lambda reference: len(reference.ids))
    llama = worker.call("model.LlamaModel", str(tiny.folder), keep=True)
    for prompt, last_only, hidden_states in ((long, True, False), (short, False, True), (long, False, False)):
        worker.call(llama.method("forward"), prompt.ids.tolist(), last_only, hidden_states)
        expect_logits(worker.call(llama.method("forward"), short.ids), short)
    unknown = tiny.config.vocab_size
    for ids, because in (
        ([], "the prompt is empty"),
        ([unknown], f"the ids are 0 to {unknown - 1}"),
        ([7, -1], "no id is below 0"),
        ([5] * (tiny.config.max_position_embeddings + 1), "that is one token more than max_position_embeddings"),
    ):
        called = f"forward({ids})" if len(ids) < 3 else f"forward of {len(ids)} tokens"
        expect_error(partial(worker.call, llama.method("forward"), ids), "ValueError", called=called, because=because)
    expect_longest(worker, rng, scripted_model(rng, shared_folder, max_position_embeddings=20))


def expect_longest(worker: Worker, rng: Generator, model: ScriptedModel) -> None:
    """A prompt of as many tokens as the model has positions is right, the first and the last id among them."""
    llama = worker.call("model.LlamaModel", str(model.folder), keep=True)
    longest, last = model.config.max_position_embeddings, model.config.vocab_size - 1
    for length in (longest - 1, longest, longest + 1):
        ids = [last, *model.prompt(rng, length - 2), 0]
        called, forward = f"forward of {length} tokens", partial(worker.call, llama.method("forward"), ids)
        told = f"the model's max_position_embeddings is {longest}, and its ids are 0 to {last}"
        if length > longest:
            expect_error(forward, "ValueError", called=called, because=told)
            return
        logits = expect_success(forward, called, told)
        right = getattr(logits, "shape", ()) == (length, last + 1)
        require(right, f"logits has not the shape [{length}, {last + 1}].", "INCORRECT_SHAPE")
        wrong = np.flatnonzero(logits.argmax(axis=1) != model.successor[ids])
        told = f"{called}: the largest logit of row {wrong[:1]} is not that of the token that follows in this model."
        require(not wrong.size, told)
