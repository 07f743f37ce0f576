"""Writes the answer to one prompt: a prefill, then a decode for each further token, until something ends it."""

from collections.abc import Sequence

from given.requests import SamplingParams

from .kv_cache import KVCache
from .model_runner import ModelRunner


def generate(
    runner: ModelRunner, cache: KVCache, prompt: Sequence[int], params: SamplingParams
) -> tuple[list[int], str]:
    """(new tokens, finish reason) of one prompt, written with slot 0 of the cache.

    The reason is "stop" when a token is one of runner.model.config.eos_token_ids, which is then the last token returned
    (params.ignore_eos: never), and "length" when there are params.max_tokens new tokens or prompt and new tokens
    together are cache.max_length. All tokens are drawn with one generator, numpy.random.default_rng(params.seed).
    Raises RequestTooLong when the cache leaves no room for a new token; what model and sampling raise passes through.
    """
    # TODO s10.3: prefill for the first logits, then decode the newest token
    raise NotImplementedError("s10.3")
