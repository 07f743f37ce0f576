"""The engine: requests come and go, and every step gives each running one a token.

Owns the model, its cache, the scheduler and the requests' random numbers. Not for several threads at once.
"""

import operator
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given import graphs, ops
from given.config import LlamaConfig
from given.requests import Completion, RequestTooLong, SamplingParams, StepOutput, UnknownRequest
from given.tokenizer import Tokenizer
from pycuda import gpuarray
from pycuda.gpuarray import GPUArray

from .model import LlamaModel
from .model_runner import ModelRunner
from .options import Options
from .paged_kv_cache import PagedKVCache
from .sampling import sample
from .scheduler import Request, Scheduler


class LLM:
    """A model of one folder that serves many requests at once; the names are vLLM's."""

    def __init__(
        self,
        model_dir: str,
        *,
        max_num_seqs: int = 8,
        max_model_len: int | None = None,
        kv_memory_bytes: int | None = None,
        num_blocks: int | None = None,
        block_size: int = 16,
        max_num_batched_tokens: int | None = None,
        enforce_eager: bool = True,
    ) -> None:
        """Load the model and allocate everything that steps will need.

        max_num_seqs: requests running at once. max_model_len: the longest context, prompt and new tokens together; by
        default the model's own, at most 4,096. The size of the cache is given as its number of blocks of `block_size`
        tokens, or in bytes for the keys and values of all layers; by default it suffices for max_num_seqs full
        contexts. No context is longer than the whole cache. max_num_batched_tokens: a step computes this many tokens
        at most, prompts and one for each decode, but one prompt always; by default 2,048, or a full context if that is
        longer. enforce_eager: False allows decode steps to be recorded as CUDA graphs where there are any, and obliges
        to nothing.
        Raises ValueError for an option that means nothing, or for both sizes of the cache at once; ConfigError and
        SafetensorsError, which name the file that is not usable, pass through.
        """
        # s13.2: the options first, then the model, the cache, the scheduler, and where a step's ids go
        self.config = LlamaConfig.from_folder(model_dir)
        options = Options(
            self.config,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            kv_memory_bytes=kv_memory_bytes,
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        self.max_length = options.max_length
        self.runner = ModelRunner(LlamaModel(model_dir))
        if not enforce_eager and graphs.is_supported():
            self.runner.use_graphs()
        self.runner.reserve(options.longest_prefill, max_num_seqs)
        self.cache = PagedKVCache(self.config, options.num_blocks, block_size, max_num_seqs, self.max_length)
        self.scheduler = Scheduler(self.cache, options.max_num_batched_tokens, headroom=block_size)
        self._model_dir = model_dir
        self._requests: dict[str, Request] = {}
        self._num_blocks = options.num_blocks
        self._num_steps = 0
        self._ids = gpuarray.empty(max_num_seqs, np.int32)
        self._host_ids = cuda.pagelocked_empty(max_num_seqs, np.int32)

    def add_request(self, request_id: str, prompt: Sequence[int] | str, sampling_params: SamplingParams) -> None:
        """Queue a request; it takes part from the next step on. `prompt`: token ids, or text for the tokenizer.

        Raises ValueError for an id that an unfinished request has, an empty prompt, a token outside the vocabulary,
        max_tokens 0 or no SamplingParams, its subclass TokenizerError for text where the model has no tokenizer.json,
        and RequestTooLong where the context or the whole cache has no room for the prompt and one new token. Nothing
        has changed then.
        """
        # s13.2: refuse everything here, so that a request that waits can be served
        if not isinstance(request_id, str):
            raise ValueError(f"a request's id is a text, not {request_id!r}")
        if request_id in self._requests:
            raise ValueError(f"request {request_id!r} is not finished: abort it first or take another id")
        self._queue(self._checked(request_id, prompt, sampling_params))

    def step(self) -> list[StepOutput]:
        """Give each running request its next token, those included that have been admitted in this step; [] when
        there is nothing to do.

        When anything fails in it, no token was given, and all requests wait to be computed again from the tokens they
        had, in the order they came: the next step may be tried, or requests be aborted.
        """
        # s13.2: schedule, compute, and only then change the requests
        try:
            decodes, prefills = self.scheduler.schedule()
            tokens = self._compute(decodes, prefills)
        except BaseException:  # what the cache holds is uncertain: begin again with the tokens, which are not
            while self.scheduler.running:
                self.scheduler.preempt()
            raise
        self._num_steps += bool(tokens)
        return [self._give(request, token) for request, token in zip(decodes + prefills, tokens, strict=True)]

    def abort(self, request_id: str) -> None:
        """End a request, waiting or running; it gets no further token. Raises UnknownRequest where there is none."""
        # s13.2: from the scheduler, too
        if request_id not in self._requests:
            raise UnknownRequest(f"no request {request_id!r}: it has ended, or was never added")
        self.scheduler.remove(self._requests.pop(request_id))

    def has_unfinished_requests(self) -> bool:
        """Whether a request waits or runs."""
        # s13.2: look at the requests
        return bool(self._requests)

    def generate(
        self,
        prompts: str | Sequence[Sequence[int] | str],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Serve all prompts to their ends; the completions are in the order of the prompts.

        One text is allowed for a list of one. sampling_params: one for all, one for each, or SamplingParams().
        Raises what add_request raises, with the index of the prompt, before anything runs; ValueError also when there
        are unfinished requests of add_request, whose tokens would be lost here. When a step fails its error is
        raised and no request is left.
        """
        # s13.2: check all, queue all, step until all have ended
        if self._requests:
            raise ValueError(f"{len(self._requests)} added requests are unfinished: step until they end, or abort them")
        prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        requests = self._all_checked(prompts, _one_for_each(sampling_params, len(prompts)))
        for request in requests:
            self._queue(request)
        tokens: dict[str, list[int]] = {request.id: [] for request in requests}
        reasons: dict[str, str] = {}
        try:
            while self._requests:
                for request_id, token, reason in self.step():
                    tokens[request_id].append(token)
                    if reason is not None:
                        reasons[request_id] = reason
        finally:
            for request_id in list(self._requests):
                self.abort(request_id)
        return [
            self._completion(prompt, tokens[request.id], reasons[request.id])
            for prompt, request in zip(prompts, requests, strict=True)
        ]

    def stats(self) -> dict[str, int]:
        """Counts: "running" and "waiting" requests, "preemptions" and "steps" so far, "free_blocks", "total_blocks"."""
        # s13.2: gather them
        return {
            "running": len(self.scheduler.running),
            "waiting": len(self.scheduler.waiting),
            "preemptions": self.scheduler.num_preemptions,
            "steps": self._num_steps,
            "free_blocks": self.cache.block_manager.num_free(),
            "total_blocks": self._num_blocks,
        }

    def _checked(self, request_id: str, prompt: Sequence[int] | str, params: SamplingParams) -> Request:
        """The request, not yet queued; raises what add_request raises for a prompt and its parameters."""
        if not isinstance(params, SamplingParams):
            raise ValueError(f"sampling_params must be SamplingParams, not {type(params).__name__}")
        if params.max_tokens == 0:
            raise ValueError("max_tokens is 0: a request asks for at least one token")
        ids = self._tokenizer.encode(prompt) if isinstance(prompt, str) else _whole_numbers(prompt)
        if not ids:
            raise ValueError("the prompt is empty: it needs at least one token")
        if min(ids) < 0 or max(ids) >= self.config.vocab_size:
            raise ValueError(f"the prompt has a token id outside 0 … {self.config.vocab_size - 1}")
        if len(ids) + 1 > self.max_length:
            raise RequestTooLong(
                f"the prompt has {len(ids)} tokens; with a new one the longest context here is {self.max_length}"
            )
        max_length = min(len(ids) + params.max_tokens, self.max_length)
        return Request(request_id, ids, max_length, params, np.random.default_rng(params.seed))

    def _all_checked(self, prompts: Sequence[Sequence[int] | str], params: Sequence[SamplingParams]) -> list[Request]:
        """The requests of generate, whose ids are their indices."""
        requests = []
        for index, (prompt, its_params) in enumerate(zip(prompts, params, strict=True)):
            try:
                requests.append(self._checked(str(index), prompt, its_params))
            except ValueError as error:
                kind = RequestTooLong if isinstance(error, RequestTooLong) else ValueError
                raise kind(f"prompt {index}: {error}") from None
        return requests

    def _queue(self, request: Request) -> None:
        self._requests[request.id] = request
        self.scheduler.add(request)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.from_folder(self._model_dir)

    @cached_property
    def _host_logits(self) -> np.ndarray:
        """[max_num_seqs, vocab_size] float32, page-locked: the rows that tokens are drawn from."""
        return cuda.pagelocked_empty((len(self._host_ids), self.config.vocab_size), np.float32)

    def _compute(self, decodes: list[Request], prefills: list[Request]) -> list[int]:
        """The next token of each request, the decodes' first. The GPU is waited for once, by the copy of the ids."""
        batch = decodes + prefills
        if not batch:
            return []
        if decodes:
            ids = [request.tokens[-1] for request in decodes]
            self._choose(decodes, self.runner.launch_decode(ids, self.cache, _slots(decodes)), 0)
        if prefills:
            prompts = [request.tokens for request in prefills]
            logits = self.runner.launch_prefill(prompts, self.cache, _slots(prefills))
            self._choose(prefills, logits, len(decodes))
        cuda.memcpy_dtoh(self._host_ids[: len(batch)], self._ids.gpudata)
        return self._draw(batch, self._host_ids[: len(batch)].tolist())

    def _choose(self, requests: list[Request], logits: GPUArray, first: int) -> None:
        """Launch the greedy choice for these rows, which are rows first … of the step. The logits of a request that
        draws its tokens start for the host; they are there when the ids are, which are copied after them."""
        ops.argmax(self._ids[first : first + len(requests)], logits, self.runner.stream)
        for row, request in enumerate(requests):
            if request.params.temperature > 0:
                cuda.memcpy_dtoh_async(self._host_logits[first + row], logits[row].gpudata)

    def _draw(self, batch: list[Request], tokens: list[int]) -> list[int]:
        """The tokens, with a drawn one in place of the greedy one where the temperature is above 0."""
        drawing = [row for row, request in enumerate(batch) if request.params.temperature > 0]
        states = [batch[row].generator.bit_generator.state for row in drawing]
        try:
            for row in drawing:
                tokens[row] = sample(self._host_logits[row], batch[row].params, batch[row].generator)
        except BaseException:  # none of these tokens is given, so they must be drawn again alike
            for row, state in zip(drawing, states, strict=True):
                batch[row].generator.bit_generator.state = state
            raise
        return tokens

    def _give(self, request: Request, token: int) -> StepOutput:
        """Add its new token to a request, and end the request where that was the last."""
        request.tokens.append(token)
        reason = None
        if token in self.config.eos_token_ids and not request.params.ignore_eos:
            reason = "stop"
        elif len(request.tokens) == request.max_length:
            reason = "length"
        if reason is not None:
            self.scheduler.remove(self._requests.pop(request.id))
        return StepOutput(request.id, token, reason)

    def _completion(self, prompt: Sequence[int] | str, tokens: list[int], reason: str) -> Completion:
        text = None
        if isinstance(prompt, str):
            text = self._tokenizer.decode(tokens[:-1] if reason == "stop" else tokens)
        return Completion(tokens, text, reason)


def _whole_numbers(prompt: Sequence[int]) -> list[int]:
    try:
        return [operator.index(token) for token in prompt]
    except TypeError:
        raise ValueError("a prompt is a text or a list of token ids, which are whole numbers") from None


def _one_for_each(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    """The parameters of each of `count` prompts. Raises ValueError where a list has another length."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise ValueError(f"{len(params)} sampling_params for {count} prompts: give one for all or one for each")
    return list(params)


def _slots(requests: list[Request]) -> list[int]:
    return [request.slot for request in requests]
