"""Writes the answer to one prompt: a prefill, then a decode for each further token, until something ends it."""

from collections.abc import Sequence

import numpy as np
from given.requests import RequestTooLong, SamplingParams

from .kv_cache import KVCache
from .model_runner import ModelRunner
from .sampling import sample


def generate(
    runner: ModelRunner, cache: KVCache, prompt: Sequence[int], params: SamplingParams
) -> tuple[list[int], str]:
    """(new tokens, finish reason) of one prompt, written with slot 0 of the cache.

    The reason is "stop" when a token is one of runner.model.config.eos_token_ids, which is then the last token returned
    (params.ignore_eos: never), and "length" when there are params.max_tokens new tokens or prompt and new tokens
    together are cache.max_length. All tokens are drawn with one generator, numpy.random.default_rng(params.seed).
    Raises RequestTooLong when the cache leaves no room for a new token; what model and sampling raise passes through.
    """
    # s10.3: prefill for the first logits, then decode the newest token
    room = cache.max_length - len(prompt)
    if room < 1:
        raise RequestTooLong(f"a prompt of {len(prompt)} tokens leaves no room in a context of {cache.max_length}")
    stops = () if params.ignore_eos else runner.model.config.eos_token_ids
    generator = np.random.default_rng(params.seed)
    tokens: list[int] = []
    while len(tokens) < min(params.max_tokens, room):
        logits = runner.decode(tokens[-1], cache) if tokens else runner.prefill(prompt, cache)
        tokens.append(sample(logits, params, generator))
        if tokens[-1] in stops:
            return tokens, "stop"
    return tokens, "length"
