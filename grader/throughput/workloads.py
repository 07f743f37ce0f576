"""What is timed on a GPU: one workload for each stage that has points on throughput, on Llama 3.2 1B's shape.

Each function makes its calls through a Worker, times them on the parent's clock, and says how many tokens came of it
and how many bytes had to be read for them at the least: every step reads the weights, every token the keys and values
before it. `make calibrate` runs them on the solutions, a check on a submission (grader/throughput/timing.py judges).

Lengths are the same in every run; tokens and arrays are drawn anew, so that nobody can have their answers ready, and
some of what is timed is judged, so that nobody gains by leaving out the work at these sizes.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from given.config import LlamaConfig
from given.requests import SamplingParams
from numpy.random import Generator

from grader import oracle
from grader.failure import Failure
from grader.judge.compare import expect
from grader.model.weight_shapes import weight_shapes
from grader.oracle.llama import LlamaOracle
from grader.oracle.streams import expect_stream
from grader.traces.answers import read_completions
from grader.traces.trace import BF16_BYTES, Trace, kv_bytes_per_token, random_trace
from grader.worker.arguments import BF16, Handle, Out
from grader.worker.client import Worker

SEED = 0
"""Of the lengths."""
JUDGED_ROWS = 4
"""Rows of an attention that are held against the reference."""
JUDGED_CONTEXT = 512
"""So far an answer is judged at least, its prompt counted; and answers are judged until they have as many together."""
LONGEST_JUDGED = 1536
"""A drawn token past this many is not judged: the reference's time grows with the square of the context."""
WARM_UP = 4
"""Tokens of each request of a first run, in which kernels are compiled and buffers made."""


@dataclass(frozen=True)
class Timed:
    """One timed run."""

    seconds: float
    tokens: int
    """New tokens; for a kernel, the queries of a launch."""
    bytes: int
    """What must be read at the least."""
    answers: Sequence[tuple[Sequence[int], Sequence[int]]] = ()
    """(prompt, new tokens) of each request."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


Workload = Callable[[Worker, Path, Generator], Timed]
"""Runs on the model of a folder, with contents that the generator draws."""


def new_runner(worker: Worker, folder: Path) -> Handle:
    """The submission's ModelRunner, with its model of a folder."""
    model: Handle = worker.call("model.LlamaModel", str(folder), keep=True)
    runner: Handle = worker.call("model_runner.ModelRunner", model, keep=True)
    return runner


def decode_alone(worker: Worker, folder: Path, rng: Generator, prompt: int, tokens: int) -> Timed:
    """`decode`, a token a call, after a prompt: always the most probable one."""
    config = LlamaConfig.from_folder(folder)
    runner = new_runner(worker, folder)
    cache = worker.call("kv_cache.KVCache", config, 1, prompt + tokens + 1, keep=True)
    ids = rng.integers(config.vocab_size, size=prompt).tolist()
    answer = [_best(worker.call(runner.method("prefill"), ids, cache), config.vocab_size)]
    answer.append(_best(worker.call(runner.method("decode"), answer[-1], cache), config.vocab_size))
    begin = time.perf_counter()
    for _ in range(tokens - 1):
        answer.append(_best(worker.call(runner.method("decode"), answer[-1], cache), config.vocab_size))
    seconds = time.perf_counter() - begin
    size = _bytes(config, tokens - 1, range(prompt + 2, prompt + tokens + 1))
    return Timed(seconds, tokens - 1, size, [(ids, answer)])


def decode_together(worker: Worker, folder: Path, rng: Generator, sequences: int, prompt: int, steps: int) -> Timed:
    """`decode_batch`, a step a call, after packed prompts: random tokens, but the most probable ones of one sequence,
    so that its answer can be judged."""
    config = LlamaConfig.from_folder(folder)
    runner = new_runner(worker, folder)
    cache = worker.call("kv_cache.KVCache", config, sequences, prompt + steps + 1, keep=True)
    ids = rng.integers(config.vocab_size, size=(sequences, prompt + steps))
    judged, shape = int(rng.integers(sequences)), (sequences, config.vocab_size)

    def step(position: int) -> None:
        logits = worker.call(runner.method("decode_batch"), ids[:, position].tolist(), cache)
        if position + 1 < ids.shape[1]:
            ids[judged, position + 1] = _best(logits, *shape, row=judged)

    logits = worker.call(runner.method("prefill_batch"), ids[:, :prompt].tolist(), cache)
    ids[judged, prompt] = _best(logits, *shape, row=judged)
    step(prompt)
    begin = time.perf_counter()
    for position in range(prompt + 1, prompt + steps):
        step(position)
    seconds = time.perf_counter() - begin
    contexts = [context for context in range(prompt + 2, prompt + steps + 1) for _ in range(sequences)]
    answer = ids[judged].tolist()
    size = _bytes(config, steps - 1, contexts)
    return Timed(seconds, len(contexts), size, [(answer[:prompt], answer[prompt:])])


def attention_kernels(worker: Worker, folder: Path, rng: Generator, length: int, sequences: int) -> Timed:
    """flash_attention over a prompt of `length`, then flash_decode_attention of `sequences` as long contexts, on the
    device's clock; some rows of each are judged."""
    config = LlamaConfig.from_folder(folder)
    scale = config.head_dim**-0.5
    heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    q, k, v = (_normal(rng, length, count, config.head_dim) for count in heads)
    out, seconds = worker.timed("flash_attention", Out(q.shape), q, k, v, scale)
    for row in (length - 1, *rng.integers(length, size=JUDGED_ROWS - 1).tolist()):
        want = oracle.attention(q[row : row + 1], k[: row + 1], v[: row + 1], scale)
        expect(out[row : row + 1], want, f"row {row} of out")
    queries = _normal(rng, sequences, config.num_heads, config.head_dim)
    caches = [np.broadcast_to(array, (sequences, *array.shape)).copy() for array in (k, v)]
    slots, lengths = np.arange(sequences, dtype=np.int32), np.full(sequences, length, np.int32)
    out, more = worker.timed("flash_decode_attention", Out(queries.shape), queries, *caches, slots, lengths, scale)
    seconds += more
    for row in rng.integers(sequences, size=JUDGED_ROWS).tolist():
        want = oracle.attention(queries[row : row + 1], k, v, scale)
        expect(out[row : row + 1], want, f"row {row} of out")
    size = q.nbytes + k.nbytes + v.nbytes + queries.nbytes + sum(cache.nbytes for cache in caches)
    return Timed(seconds, length + sequences, size)


def serve(worker: Worker, folder: Path, trace: Trace, options: Mapping[str, Any]) -> Timed:
    """One `generate` call with all requests of the trace."""
    config = LlamaConfig.from_folder(folder)
    llm = worker.call("llm.LLM", str(folder), keywords=options, keep=True)
    prompts = [list(request.prompt) for request in trace]
    others = [prompt[::-1] for prompt in prompts]  # nothing that is timed has been computed before
    worker.call(llm.method("generate"), others, SamplingParams(temperature=0.0, max_tokens=WARM_UP, ignore_eos=True))
    begin = time.perf_counter()
    result = worker.call(llm.method("generate"), prompts, [request.params for request in trace])
    seconds = time.perf_counter() - begin
    completions = read_completions(result, len(trace), config.vocab_size)
    for request, completion in zip(trace, completions, strict=True):
        if len(completion.token_ids) != request.tokens:
            told = (
                f'The answer to "{request.id}" has {len(completion.token_ids)} tokens; it must have {request.tokens}.'
            )
            raise Failure("INCORRECT_VALUE", told)
    tokens = sum(request.tokens for request in trace)
    steps = max(-(-tokens // options["max_num_seqs"]), max(request.tokens for request in trace))
    contexts = (len(request.prompt) + index for request in trace for index in range(1, request.tokens))
    answers = [(prompt, completion.token_ids) for prompt, completion in zip(prompts, completions, strict=True)]
    return Timed(seconds, tokens, _bytes(config, steps, contexts), answers)


def serve_random(
    worker: Worker, folder: Path, rng: Generator, requests: int, lengths: tuple[int, int], slots: int, **options: int
) -> Timed:
    """`serve` for random requests whose prompts and answers have lengths of this range."""
    config = LlamaConfig.from_folder(folder)
    trace = [
        replace(request, prompt=tuple(rng.integers(config.vocab_size, size=len(request.prompt)).tolist()))
        for request in random_trace(np.random.default_rng(SEED), config.vocab_size, requests, lengths)
    ]
    limits = {"max_model_len": 2 * lengths[1], "max_num_batched_tokens": 8 * lengths[1]}
    return serve(worker, folder, trace, {"max_num_seqs": slots, **limits, **options})


WORKLOADS: Mapping[str, Workload] = {
    "s09": partial(decode_alone, prompt=128, tokens=129),
    "s11": partial(attention_kernels, length=4096, sequences=8),
    "s12": partial(decode_together, sequences=32, prompt=128, steps=65),
    "s13": partial(serve_random, requests=64, lengths=(16, 256), slots=16),
    "s16": partial(serve_random, requests=256, lengths=(100, 1024), slots=256, kv_memory_bytes=4 << 30),
}


def expect_part(reference: LlamaOracle, timed: Timed, rng: Generator) -> None:
    """Hold answers, drawn, against the reference, each from its first token up to a drawn one, the last as likely as
    any other; Failure as of `expect_stream`."""
    judged = 0
    for index in rng.permutation(len(timed.answers)).tolist():
        prompt, tokens = timed.answers[index]
        longest = LONGEST_JUDGED - len(prompt)
        drawn = int(rng.integers(len(tokens), endpoint=True))
        count = min(max(drawn, JUDGED_CONTEXT - len(prompt)), longest)
        expect_stream(reference, prompt, tokens[:count], f"the timed answer to prompt {index}")
        judged += len(prompt) + min(count, len(tokens))
        if judged >= JUDGED_CONTEXT:
            break


def _best(logits: Any, *shape: int, row: Any = ...) -> int:
    """The most probable token of these logits; Failure unless they have the shape."""
    if not isinstance(logits, np.ndarray) or logits.shape != shape:
        raise Failure("INCORRECT_SHAPE", f"The logits of a timed call must be an array {list(shape)}.")
    return int(logits[row].argmax())


def _bytes(config: LlamaConfig, steps: int, contexts: Iterable[int]) -> int:
    """Bytes of the weights once a step, and of the keys and values of each context (in tokens) once."""
    weights = {name: shape for name, shape in weight_shapes(config).items() if "embed_tokens" not in name}
    elements = sum(int(np.prod(shape)) for shape in weights.values())
    return steps * elements * BF16_BYTES + sum(contexts) * kv_bytes_per_token(config)


def _normal(rng: Generator, *shape: int) -> Any:
    return rng.standard_normal(shape, np.float32).astype(BF16)
