"""An honest engine of stage 13: continuous batching over the contiguous cache. What it lacks is stage 16."""

import numpy as np
from given.config import LlamaConfig
from given.requests import Completion, RequestTooLong, SamplingParams, StepOutput, UnknownRequest
from given.tokenizer import Tokenizer

from .kv_cache import KVCache
from .model import LlamaModel
from .model_runner import ModelRunner
from .sampling import sample


class Sequence:
    def __init__(self, name, prompt, params):
        self.name, self.tokens, self.params = name, prompt, params
        self.end = len(prompt) + params.max_tokens
        self.generator = np.random.default_rng(params.seed)
        self.slot = None


class LLM:
    def __init__(
        self,
        model_dir,
        *,
        max_num_seqs=8,
        max_model_len=None,
        kv_memory_bytes=None,
        num_blocks=None,
        block_size=16,
        max_num_batched_tokens=2048,
    ):
        if min(max_num_seqs, 1 if max_model_len is None else max_model_len, max_num_batched_tokens) < 1:
            raise ValueError("an option below 1 means nothing")
        config = LlamaConfig.from_folder(model_dir)
        self.model_dir, self.vocab_size, self.eos = model_dir, config.vocab_size, config.eos_token_ids
        self.max_length = max_model_len or config.max_position_embeddings
        if kv_memory_bytes:
            row = 4 * config.num_layers * config.num_kv_heads * config.head_dim * self.max_length
            max_num_seqs = min(max_num_seqs, kv_memory_bytes // row)
        if num_blocks:
            self.max_length = min(self.max_length, num_blocks * block_size)
            max_num_seqs = min(max_num_seqs, num_blocks * block_size // self.max_length)
        self.runner = ModelRunner(LlamaModel(model_dir))
        self.cache = KVCache(config, max_num_seqs, self.max_length)
        self.budget, self.rows = max_num_batched_tokens, max_num_seqs
        self.waiting, self.running, self.steps = [], [], 0

    def add_request(self, request_id, prompt, sampling_params):
        if not isinstance(request_id, str):
            raise ValueError(f"{request_id!r} is no name")
        if any(request.name == request_id for request in self.waiting + self.running):
            raise ValueError(f"{request_id} is there already")
        self.waiting.append(self.checked(request_id, prompt, sampling_params))

    def checked(self, name, prompt, params):
        if not isinstance(params, SamplingParams) or params.max_tokens == 0:
            raise ValueError("no sampling parameters for at least one token")
        ids = Tokenizer.from_folder(self.model_dir).encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not ids or min(ids) < 0 or max(ids) >= self.vocab_size:
            raise ValueError("the prompt is empty or has an unknown id")
        if len(ids) >= self.max_length:
            raise RequestTooLong(f"{len(ids)} tokens")
        return Sequence(name, ids, params)

    def abort(self, request_id):
        for requests in (self.waiting, self.running):
            for request in requests:
                if request.name == request_id:
                    requests.remove(request)
                    return
        raise UnknownRequest(request_id)

    def has_unfinished_requests(self):
        return bool(self.waiting or self.running)

    def step(self):
        decodes, prefills = list(self.running), self.admit()
        logits = self.compute(decodes, prefills)
        self.steps += bool(logits)
        return [self.give(request, row) for request, row in zip(decodes + prefills, logits, strict=True)]

    def admit(self):
        admitted, budget = [], self.budget - len(self.running)
        while self.waiting and len(self.running) < self.rows:
            if admitted and len(self.waiting[0].tokens) > budget:
                break
            request = self.waiting.pop(0)
            request.slot = min(set(range(self.rows)) - {other.slot for other in self.running})
            budget -= len(request.tokens)
            self.running.append(request)
            admitted.append(request)
        return admitted

    def compute(self, decodes, prefills):
        logits = []
        if decodes:
            ids, slots = [request.tokens[-1] for request in decodes], [request.slot for request in decodes]
            logits += list(self.runner.decode_batch(ids, self.cache, slots))
        if prefills:
            prompts, slots = [request.tokens for request in prefills], [request.slot for request in prefills]
            logits += list(self.runner.prefill_batch(prompts, self.cache, slots))
        return logits

    def give(self, request, logits):
        token = sample(logits, request.params, request.generator)
        request.tokens.append(token)
        reason = None
        if token in self.eos and not request.params.ignore_eos:
            reason = "stop"
        elif len(request.tokens) in (request.end, self.max_length):
            reason = "length"
        if reason:
            self.running.remove(request)
        return StepOutput(request.name, token, reason)

    def generate(self, prompts, sampling_params=None):
        prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        params = sampling_params or SamplingParams()
        params = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        requests = []
        for index, (prompt, its_params) in enumerate(zip(prompts, params, strict=True)):
            try:
                requests.append(self.checked(str(index), prompt, its_params))
            except ValueError as error:
                raise type(error)(f"prompt {index}: {error}") from None
        self.waiting += requests
        outputs = []
        while self.waiting or self.running:
            outputs += self.step()
        return [self.completion(index, prompt, outputs) for index, prompt in enumerate(prompts)]

    def completion(self, index, prompt, outputs):
        own = [output for output in outputs if output.request_id == str(index)]
        tokens = [output.token for output in own]
        text = Tokenizer.from_folder(self.model_dir).decode(tokens) if isinstance(prompt, str) else None
        return Completion(tokens, text, own[-1].finish_reason)

    def stats(self):
        blocks = {"free_blocks": self.rows - len(self.running), "total_blocks": self.rows}
        counts = {"running": len(self.running), "waiting": len(self.waiting), "preemptions": 0, "steps": self.steps}
        return {**counts, **blocks}
