"""An alternative solution: the number of tokens is settled first, then a loop over them."""

from collections.abc import Sequence

import numpy as np
from given.requests import RequestTooLong, SamplingParams

from .kv_cache import KVCache
from .model_runner import ModelRunner
from .sampling import sample


def generate(
    runner: ModelRunner, cache: KVCache, prompt: Sequence[int], params: SamplingParams
) -> tuple[list[int], str]:
    """(new tokens, finish reason) of one prompt."""
    longest = min(params.max_tokens, cache.max_length - len(prompt))
    if len(prompt) >= cache.max_length:
        raise RequestTooLong(f"{len(prompt)} tokens fill the context of {cache.max_length}; nothing can follow")
    answer: list[int] = []
    if longest == 0:
        return answer, "length"
    last = set() if params.ignore_eos else set(runner.model.config.eos_token_ids)
    generator = np.random.default_rng(params.seed)
    logits = runner.prefill(prompt, cache)
    for missing in range(longest - 1, -1, -1):
        answer.append(sample(logits, params, generator))
        if answer[-1] in last:
            return answer, "stop"
        if missing:
            logits = runner.decode(answer[-1], cache)
    return answer, "length"
