"""Stage 13: each request gets its own answer, whatever others do; the scheduler decides who runs and who waits.

True of any LLM, over a contiguous cache or a paged one.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from given.requests import SamplingParams
from given.tokenizer import Tokenizer
from numpy.random import Generator

from grader.checking.api import Band, Sampling, Worker, check, expect_error, require
from grader.checks.support.batched_work import serve_in_passes
from grader.checks.support.llm import (
    Meddler,
    ending,
    excerpt,
    expect_budget,
    expect_lean,
    expect_stats,
    greedy,
    new_llm,
    serve_as,
    serve_exactly,
    serve_greedily,
)
from grader.oracle.references import ReferenceModel
from grader.oracle.scripted import ScriptedModel, scripted_model
from grader.oracle.streams import expect_stream
from grader.traces.answers import expect_counts, read_completions
from grader.traces.drive import drive, expect_fair, expect_lengths, expect_no_starvation
from grader.traces.trace import TraceRequest, skewed_trace

SLOTS = 4
FLAT: Mapping[str, Any] = {"temperature": 1e5, "max_tokens": 24, "ignore_eos": True}
"""Each of the scripted model's 1,024 tokens is as probable as any other."""
BUDGET = 32


def expect_own_contexts(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """Each request reads its own keys and values also where rows and slots have different orders.

    The second of three ends first, and the fourth takes its place in the cache, but not in the batch.
    """
    llm = new_llm(worker, tiny.folder, max_num_seqs=3, max_model_len=64)
    lengths = ((9, 10), (4, 2), (15, 9), (6, 8))
    trace = [greedy(f"t{i}", excerpt(rng, tiny, prompt), tokens) for i, (prompt, tokens) in enumerate(lengths)]
    seen = drive(worker, llm, trace, tiny.config.vocab_size)
    expect_lengths(seen, trace)
    for request in trace:
        expect_stream(tiny.oracle, request.prompt, seen.tokens[request.id], f'the answer to "{request.id}"')


def expect_own_numbers(worker: Worker, model: ScriptedModel, request: TraceRequest, tokens: Sequence[int]) -> None:
    """The answer is what the submission's own `sample` draws, token after token, from numpy.random.default_rng(seed).

    The scripted model's logits are whole numbers, the same in any order of summation, so nothing is rounded otherwise.
    """
    weights = safetensors.numpy.load_file(model.folder / "model.safetensors")
    states, head = (weights[f"{name}.weight"].astype(np.float32) for name in ("model.embed_tokens", "lm_head"))
    generator = worker.call("numpy.random:default_rng", request.params.seed, keep=True)
    for index, (current, token) in enumerate(zip([request.prompt[-1], *tokens[:-1]], tokens, strict=True)):
        drawn = worker.call("sampling.sample", head @ states[current], request.params, generator)
        told = (
            f'Token {index} of "{request.id}" is {token}. With these logits, draw {index + 1} of your sample from '
            f"numpy.random.default_rng({request.params.seed}) is {drawn}: a request has one generator, made once, and "
            "each of its tokens takes one draw."
        )
        require(drawn == token, told)


@check("s13.1")
def own_answers(worker: Worker, rng: Generator, shared_folder: Path, tiny: ReferenceModel) -> None:
    """Each request gets its own answer: those that wait follow those that end, also the one in the middle."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=3, max_model_len=64)
    lengths = (20, 3, 17, 9, 1, 12, 5)  # of the first three the middle one ends first
    arrivals = (0, 0, 0, 0, 2, 9, 9)
    trace = [
        greedy(f"r{i}", model.prompt(rng, 1 + 4 * i), tokens, arrival=arrival)
        for i, (tokens, arrival) in enumerate(zip(lengths, arrivals, strict=True))
    ]
    serve_exactly(worker, llm, trace, model)
    expect_own_contexts(worker, rng, tiny)


@check("s13.2")
def ends(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """An answer ends with any end-of-sequence token, after max_tokens, or where the context is full."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=SLOTS, max_model_len=40)
    trace = [
        ending(f"{steps} to {eos}, max_tokens {most}", model.prompt_for(rng, steps, length, eos), steps, most)
        for eos in model.config.eos_token_ids
        for steps, length, most in ((1, 5, 4), (4, 5, 7), (3, 5, 3), (2, 38, 99))  # also as the last that is allowed
    ]
    trace += [greedy(f"{tokens} tokens", model.prompt_for(rng, 2, 3), tokens) for tokens in (1, 2, 7)]
    serve_exactly(worker, llm, trace, model)
    full = [greedy(f"after {length}", model.prompt(rng, length), 99) for length in (39, 30, 1, 38)]
    want = {r.id: model.stream(r.prompt, 99, ignore_eos=True, max_length=40) for r in full}
    serve_as(worker, llm, full, want, model.config.vocab_size)


@check("s13.3")
def greedy_text(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """At temperature 0 the stored model goes on as its reference does, in requests that share the steps."""
    llm = new_llm(worker, tiny.folder, max_num_seqs=3, max_model_len=160)
    lengths = ((33, 90), (60, 20), (48, 80), (64, 60), (20, 70), (1, 100), (57, 61))
    trace = [greedy(f"r{i}", excerpt(rng, tiny, prompt), tokens) for i, (prompt, tokens) in enumerate(lengths)]
    serve_greedily(worker, llm, trace, tiny)


@check("s13.4")
def whole_answers(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """generate answers in the order of the prompts, token ids or text, and names a prompt that it refuses."""
    llm = new_llm(worker, tiny.folder, max_num_seqs=2, max_model_len=64)
    tokenizer = Tokenizer.from_folder(tiny.folder)
    texts = [tokenizer.decode(excerpt(rng, tiny, length)) for length in (9, 3, 12)]
    params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in (8, 2, 5)]
    generate = partial(worker.call, llm.method("generate"))
    of_text = read_completions(generate(texts, params), 3, tiny.config.vocab_size)
    of_ids = read_completions(generate([tokenizer.encode(text) for text in texts], params), 3, tiny.config.vocab_size)
    for completions in (of_text, of_ids):
        expect_counts(completions, [param.max_tokens for param in params])
    for index, (text, ids) in enumerate(zip(of_text, of_ids, strict=True)):
        require(text.token_ids == ids.token_ids, f"Prompt {index} is answered otherwise as text than as token ids.")
        right = tokenizer.decode(ids.token_ids)
        require(text.text == right, f"The text of completion {index} is {text.text!r:.80}; it must be {right!r:.80}.")
    alone = read_completions(generate(texts[0], params[0]), 1, tiny.config.vocab_size)
    require(alone == of_text[:1], "generate answers one text otherwise than the same text in a list.")
    for bad, error in (([], "ValueError"), ([7] * 64, "RequestTooLong")):
        expect_error(partial(generate, [[5], bad, [6]], params), error, "1")


@check("s13.5")
def refused(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """A request that can never fit is refused at once, and those behind it are served; one that just fits is served."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=2, max_model_len=48, max_num_batched_tokens=16)
    nothing = SamplingParams(max_tokens=5)
    trace = [greedy(f"r{i}", model.prompt(rng, length), 6) for i, length in enumerate((5, 20, 3))]
    for length, arrival in ((48, 0), (49, 2), (200, 3)):
        too_long = TraceRequest(
            f"{length} tokens", tuple(model.prompt(rng, length)), nothing, 0, arrival, None, "RequestTooLong"
        )
        trace += [too_long, greedy(f"behind {length}", model.prompt(rng, 9), 4, arrival=arrival)]
    trace.append(greedy("fits", model.prompt(rng, 47), 1, arrival=4))
    serve_exactly(worker, llm, trace, model)


@check("s13.6")
def aborts(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """abort ends a waiting or a running request at once and no other; an unknown one is UnknownRequest."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=2, max_model_len=64)
    abort = partial(worker.call, llm.method("abort"))
    expect_error(partial(abort, "nobody"), "UnknownRequest")
    aborted = {0: 1, 2: 0, 3: 3, 6: 0, 7: 0}  # after this many tokens; 2, 6 and 7 wait for one of the two slots
    for _ in range(2):  # the ids of ended requests are free again
        trace = [greedy(f"r{i}", model.prompt(rng, 3 + i), 10, abort_after=aborted.get(i)) for i in range(9)]
        seen = serve_exactly(worker, llm, trace, model)
        for index in aborted:
            expect_error(partial(abort, f"r{index}"), "UnknownRequest")
        require(not seen.tokens["r7"], f"r7 was aborted while it waited, and got {len(seen.tokens['r7'])} tokens.")
    expect_error(partial(abort, "r1"), "UnknownRequest")
    expect_stats(worker, llm, running=0, waiting=0)


@check("s13.7")
def bad_input(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """Each request that means nothing raises its error, and neither those that run nor those that wait notice it."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=2, max_model_len=64)
    add, unknown = partial(worker.call, llm.method("add_request")), model.config.vocab_size
    good = SamplingParams(max_tokens=3)
    prompts: tuple[Any, ...] = ([], [unknown], [5, -1, 6], [2**40], "text for which the model has no tokenizer")
    bad: list[Any] = [("bad", prompt, good) for prompt in prompts]
    bad += [("r0", [5], good), ("r4", [5], good)]  # one that runs and one that waits
    bad += [("bad", [5], params) for params in (None, {"max_tokens": 3}, SamplingParams(max_tokens=0))]
    bad += [("bad", [5], Sampling(**fields)) for fields in ({"temperature": float("nan")}, {"top_p": 0.0})]
    bad += [(name, [5], good) for name in (7, None)]  # an id is a str
    calls = [partial(expect_error, partial(add, *arguments), "ValueError") for arguments in bad]
    calls.append(partial(expect_error, partial(worker.call, llm.method("abort"), "bad"), "UnknownRequest"))
    trace = [greedy(f"r{i}", model.prompt(rng, 3 + i), tokens) for i, tokens in enumerate((30, 9, 12, 15, 20))]
    serve_exactly(Meddler(worker, iter(calls)), llm, trace, model)
    expect_stats(worker, llm, running=0, waiting=0)


@check("s13.8")
def seeds(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """A seed gives a request the same tokens alone and in any batch, and each request has random numbers of its own."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=3, max_model_len=64)
    prompt, first = tuple(model.prompt(rng, 5)), int(rng.integers(2**31))
    requests = [TraceRequest(f"seed {first + i}", prompt, SamplingParams(seed=first + i, **FLAT), 24) for i in range(4)]
    alone = {request.id: drive(worker, llm, [request], 1024).answers[request.id] for request in requests}
    require(
        len({tuple(tokens) for tokens, _ in alone.values()}) == 4, "Requests with different seeds got the same tokens."
    )
    for request in requests:
        expect_own_numbers(worker, model, request, alone[request.id][0])
    others = [greedy(f"o{i}", model.prompt(rng, 9), 5) for i in range(4)]
    mixed = [request for pair in zip(others, requests[::-1], strict=True) for request in pair]
    together = drive(worker, llm, mixed, 1024).answers
    for request in requests:
        told = f"{request.id} gave {together[request.id][0]} in a batch and {alone[request.id][0]} alone."
        require(together[request.id] == alone[request.id], told)


@check("s13.9")
def skewed_lengths(emulator: Worker, rng: Generator, shared_folder: Path, expect_band: Band) -> None:
    """With a few long answers among short ones no slot stays empty: far fewer steps than static batching needs."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(emulator, model.folder, max_num_seqs=SLOTS, max_model_len=128)
    for requests in (24, 40):
        trace = skewed_trace(rng, model, requests=requests, max_num_seqs=SLOTS)
        serve = partial(serve_exactly, trace=trace, model=model)
        expect_lean(serve_in_passes(emulator, llm, model.config, serve), trace, SLOTS)
    expect_band("s13", 0.25)


@check("s13.10")
def arrivals(emulator: Worker, rng: Generator, shared_folder: Path, expect_band: Band) -> None:
    """Requests that arrive while others run join them in the next step, as far as slots and token budget allow."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(emulator, model.folder, max_num_seqs=SLOTS, max_model_len=128, max_num_batched_tokens=BUDGET)
    for last_arrival in (0, 40):
        trace = skewed_trace(rng, model, max_num_seqs=SLOTS, last_arrival=last_arrival, token_budget=BUDGET)
        seen = serve_in_passes(emulator, llm, model.config, partial(serve_exactly, trace=trace, model=model))
        expect_budget(seen, trace, BUDGET)
        expect_lean(seen, trace, SLOTS, BUDGET)
    expect_band("s13", 0.5)


@check("s13.11")
def fairness(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """However many requests arrive, none waits over 4 steps for its next token, and nobody is passed over for long."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=SLOTS, max_model_len=128, max_num_batched_tokens=BUDGET)
    crowd = [
        (int(rng.integers(1, 24)), 1 + 2 * int(rng.integers(8) == 0), step) for step in range(40) for _ in range(2)
    ]
    crowd[3:3] = [(24, 50, 1), (60, 6, 1)]  # a long answer, and a prompt beyond the budget, come early
    trace = [greedy(f"r{i}", model.prompt(rng, n), m, arrival=at) for i, (n, m, at) in enumerate(crowd)]
    seen = serve_exactly(worker, llm, trace, model)
    expect_no_starvation(seen)
    expect_fair(seen, SLOTS)
    expect_budget(seen, trace, BUDGET)
