"""Stage 13: each request gets its own answer, whatever others do; the scheduler decides who runs and who waits.

True of any LLM, over a contiguous cache or a paged one.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from given.requests import SamplingParams
from given.tokenizer import Tokenizer
from numpy.random import Generator

from grader.checking.api import Band, Handle, Sampling, Worker, check, expect_error, expect_success, require
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
from grader.checks.support.shared_passes import serve_in_passes
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
        told = f"Prompt {index} as text is answered with {text.token_ids}, and as token ids with {ids.token_ids}"
        require(text.token_ids == ids.token_ids, f"{told}: its ids are Tokenizer.from_folder(model_dir).encode(text).")
        right = tokenizer.decode(ids.token_ids)
        require(text.text == right, f"The text of completion {index} is {text.text!r:.80}; it must be {right!r:.80}.")
    alone = read_completions(generate(texts[0], params[0]), 1, tiny.config.vocab_size)
    told = f"generate answers one text with {alone[0].token_ids}, and the same text in a list with "
    require(alone == of_text[:1], f"{told}{of_text[0].token_ids}: one text stands for a list of one.")
    for bad, error, because in (
        ([], "ValueError", "prompt 1 is empty"),
        ([7] * 64, "RequestTooLong", "prompt 1 has 64 tokens, and max_model_len is 64"),
    ):
        expect_error(partial(generate, [[5], bad, [6]], params), error, "1", called="generate", because=because)


@check("s13.5")
def refused(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """A request that can never fit is refused at once, and those behind it are served; one that just fits is served."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=2, max_model_len=48, max_num_batched_tokens=16)
    nothing = SamplingParams(max_tokens=5)
    trace = [greedy(f"r{i}", model.prompt(rng, length), 6) for i, length in enumerate((5, 20, 3))]
    for length, arrival in ((48, 0), (49, 2), (200, 3)):
        because = "max_model_len is 48, so no new token has room"
        prompt = tuple(model.prompt(rng, length))
        too_long = TraceRequest(f"{length} tokens", prompt, nothing, 0, arrival, None, "RequestTooLong", because)
        trace += [too_long, greedy(f"behind {length}", model.prompt(rng, 9), 4, arrival=arrival)]
    trace.append(greedy("fits", model.prompt(rng, 47), 1, arrival=4))
    serve_exactly(worker, llm, trace, model)


@check("s13.6")
def aborts(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """abort ends a waiting or a running request at once and no other; an unknown one is UnknownRequest."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=2, max_model_len=64)
    abort = partial(worker.call, llm.method("abort"))
    unknown = partial(abort, "unknown")
    expect_error(unknown, "UnknownRequest", called='abort("unknown")', because="no request has had this id")
    aborted = {0: 1, 2: 0, 3: 3, 6: 0, 7: 0}  # after this many tokens; 2, 6 and 7 wait for one of the two slots
    for _ in range(2):  # the ids of ended requests are free again
        trace = [greedy(f"r{i}", model.prompt(rng, 3 + i), 10, abort_after=aborted.get(i)) for i in range(9)]
        seen = serve_exactly(worker, llm, trace, model)
        for index in aborted:
            because = "it was aborted already"
            expect_error(partial(abort, f"r{index}"), "UnknownRequest", called=f'abort("r{index}")', because=because)
        told = f"r7 got {len(seen.tokens['r7'])} tokens in its first step, in which it had to wait: max_num_seqs is 2."
        require(not seen.tokens["r7"], told)
    expect_error(partial(abort, "r1"), "UnknownRequest", called='abort("r1")', because="it has ended")
    expect_stats(worker, llm, running=0, waiting=0)


@check("s13.7")
def bad_input(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """Each option or request that means nothing raises its error, which no request that runs or waits notices."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=2, max_model_len=64)
    add, unknown = partial(worker.call, llm.method("add_request")), model.config.vocab_size
    good = SamplingParams(max_tokens=3)
    ids = f"the ids are 0 to {unknown - 1}"
    bad: list[Any] = [
        *(("bad", prompt, good, ids) for prompt in ([unknown], [5, -1, 6], [2**40])),
        ("bad", [], good, "the prompt is empty"),
        ("bad", "some text", good, "the model has no tokenizer for text"),
        *((name, [5], good, f"{name} is not finished") for name in ("r0", "r4")),  # one that runs and one that waits
        *(("bad", [5], params, "these are no SamplingParams") for params in (None, {"max_tokens": 3})),
        ("bad", [5], SamplingParams(max_tokens=0), "a request asks for one token at least"),
        *(("bad", [5], Sampling(**fields), "") for fields in ({"temperature": float("nan")}, {"top_p": 0.0})),
        *((name, [5], good, "an id is a str") for name in (7, None)),
    ]
    calls = [
        partial(
            expect_error,
            partial(add, *arguments),
            "ValueError",
            called=f"add_request({str(arguments)[1:-1]})",
            because=because,
        )
        for *arguments, because in bad
    ]
    calls.append(partial(expect_error, partial(worker.call, llm.method("abort"), "bad"), "UnknownRequest"))
    trace = [greedy(f"r{i}", model.prompt(rng, 3 + i), tokens) for i, tokens in enumerate((30, 9, 12, 15, 20))]
    serve_exactly(Meddler(worker, iter(calls)), llm, trace, model)
    expect_stats(worker, llm, running=0, waiting=0)
    folder = shared_folder / "short"
    folder.mkdir()
    expect_options(worker, rng, scripted_model(rng, folder, max_position_embeddings=40))


def expect_options(worker: Worker, rng: Generator, model: ScriptedModel) -> None:
    """Options are whole numbers from 1 on, max_model_len at most the model's; with the least of them it serves."""
    longest = model.config.max_position_embeddings
    limits = {"max_num_seqs": (0, -1), "max_model_len": (0, longest + 1), "max_num_batched_tokens": (0,)}
    for name, values in limits.items():
        most = f"to max_position_embeddings, {longest}" if name == "max_model_len" else "on"
        for value in values:
            make = partial(new_llm, worker, model.folder, **{name: value})
            because = f"it is a whole number from 1 {most}"
            expect_error(make, "ValueError", called=f"LLM(…, {name}={value})", because=because)
    least = {"max_num_seqs": 1, "max_model_len": longest, "max_num_batched_tokens": 1}
    llm = expect_success(
        partial(new_llm, worker, model.folder, **least), f"LLM(…, {least})", "each option has a value that is allowed"
    )
    last, first = model.config.vocab_size - 1, 0
    prompts = ([last, first], [first, last], model.prompt(rng, longest - 1))
    serve_exactly(worker, llm, [greedy(f"p{i}", ids, 1) for i, ids in enumerate(prompts)], model)


@check("s13.8")
def seeds(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """A seed gives a request the same tokens alone and in any batch, and each request has random numbers of its own."""
    model = scripted_model(rng, shared_folder)
    llm = new_llm(worker, model.folder, max_num_seqs=3, max_model_len=64)
    prompt, first = tuple(model.prompt(rng, 5)), int(rng.integers(2**31))
    requests = [TraceRequest(f"seed {first + i}", prompt, SamplingParams(seed=first + i, **FLAT), 24) for i in range(4)]
    alone = {request.id: drive(worker, llm, [request], 1024).answers[request.id] for request in requests}
    for one, other in combinations(alone, 2):
        told = f'"{one}" and "{other}" got the same tokens: a request draws from numpy.random.default_rng(its seed).'
        require(alone[one][0] != alone[other][0], told)
    for request in requests:
        expect_own_numbers(worker, model, request, alone[request.id][0])
    others = [greedy(f"o{i}", model.prompt(rng, 9), 5) for i in range(4)]
    mixed = [request for pair in zip(others, requests[::-1], strict=True) for request in pair]
    together = drive(worker, llm, mixed, 1024).answers
    for request in requests:
        (batch, _), (single, _) = together[request.id], alone[request.id]
        index = next((i for i, pair in enumerate(zip(batch, single, strict=False)) if pair[0] != pair[1]), len(single))
        told = f'"{request.id}" got other tokens in a batch than alone, from token {index} on: {batch[index:][:4]} and'
        told += f" {single[index:][:4]}. A request has a generator of its own, and each of its tokens takes one draw."
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
    expect_whole_budget(emulator, rng, model, llm)
    expect_band("s13", 0.5)


def expect_whole_budget(emulator: Worker, rng: Generator, model: ScriptedModel, llm: Handle) -> None:
    """A step may compute exactly max_num_batched_tokens: with a larger budget no request begins earlier."""
    sizes = ((16, 2, 0), (16, 3, 0), (5, 9, 4), (16, 2, 6), (15, 2, 6))  # the last two beside one that decodes
    trace = [greedy(f"r{i}", model.prompt(rng, n), count, arrival=at) for i, (n, count, at) in enumerate(sizes)]
    begun = []
    larger = new_llm(emulator, model.folder, max_num_seqs=SLOTS, max_model_len=64, max_num_batched_tokens=2 * BUDGET)
    for engine in (llm, larger):
        received = serve_exactly(emulator, engine, trace, model).received
        begun.append({name: steps[0] for name, steps in received.items()})
    for name in begun[0]:
        told = (
            f'With max_num_batched_tokens = {BUDGET} "{name}" got its first token in step {begun[0][name]}, and with '
        )
        told += f"{2 * BUDGET} in step {begun[1][name]}, though no step needs more than {BUDGET} tokens"
        require(begun[0][name] <= begun[1][name], f"{told}: a step may compute exactly this many.", "TOO_SLOW")


@check("s13.11")
def fairness(worker: Worker, rng: Generator, shared_folder: Path) -> None:
    """However many requests arrive, none waits over 4 steps for its next token, and none is passed over for long."""
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
