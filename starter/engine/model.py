"""The Llama model: weights on the GPU, and a pass over tokens as a sequence of kernel launches.

`forward` computes all positions of one prompt. `prefill` and `decode`, for one sequence or a batch, keep keys and
values in a cache, so that a further token costs the work of one token. The cache owns what is kept between calls.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)

if TYPE_CHECKING:
    from .kv_cache import KVCache
    from .paged_kv_cache import PagedKVCache


class LlamaModel:
    """A Llama model of one folder (config.json and safetensors), all weights on the GPU."""

    def __init__(self, model_dir: str) -> None:
        """Load the weights; ConfigError and SafetensorsError, which name the file that is not usable, pass through."""
        # TODO s08.2: upload each weight once, a tied head not twice
        raise NotImplementedError("s08.2")

    def forward(
        self, ids: Sequence[int] | np.ndarray, last_only: bool = False, hidden_states: bool = False
    ) -> np.ndarray | tuple[np.ndarray, list[np.ndarray]]:
        """Logits [tokens, vocab_size] float32 of a prompt; [1, vocab_size], of its last token, with last_only.

        With hidden_states returns (logits, states): num_layers + 1 arrays [tokens, hidden_size] bf16, the embedding's
        output and then the residual stream after each block, before the final norm.
        Raises ValueError for an empty prompt, one longer than max_position_embeddings, or an unknown id.
        """
        # TODO s08.2: embedding, the blocks, the final norm, the head
        raise NotImplementedError("s08.2")

    def prefill(
        self, ids: Sequence[int] | np.ndarray, cache: "KVCache | PagedKVCache", sequence: int = 0
    ) -> np.ndarray:
        """Begin a sequence of the cache anew with a prompt: logits [vocab_size] float32 of its last token.

        What the sequence held is forgotten. Raises ValueError for an empty prompt, an unknown id or sequence,
        RequestTooLong and, with a paged cache, OutOfBlocks; then the cache is as it was.
        """
        # TODO s09.4: as forward, but keeping keys and values, and with one row of logits
        raise NotImplementedError("s09.4")

    def decode(self, token: int, cache: "KVCache | PagedKVCache", sequence: int = 0) -> np.ndarray:
        """Append one token to a sequence that `prefill` began: logits [vocab_size] float32 of this token.

        Raises ValueError for an unknown token, a sequence that is unknown or empty, RequestTooLong and, with a paged
        cache, OutOfBlocks; then the cache is as it was.
        """
        # TODO s09.4: a batch of one
        raise NotImplementedError("s09.4")

    def prefill_batch(
        self,
        prompts: Sequence[Sequence[int] | np.ndarray],
        cache: "KVCache | PagedKVCache",
        sequences: Sequence[int] | None = None,
    ) -> np.ndarray:
        """As `prefill` for several prompts in one pass, packed one after the other: logits [B, vocab_size] float32.

        sequences: distinct ones, one per prompt; 0 … B − 1 when None. Errors are those of prefill, also for another
        number of sequences than prompts; then no sequence of the cache has changed.
        """
        # TODO s12.2: pack them, and let attention_varlen keep them apart
        raise NotImplementedError("s12.2")

    def decode_batch(
        self,
        ids: Sequence[int] | np.ndarray,
        cache: "KVCache | PagedKVCache",
        sequences: Sequence[int] | None = None,
    ) -> np.ndarray:
        """As `decode` with a token for each of several sequences in one pass: logits [B, vocab_size] float32.

        sequences: distinct ones, one per token; 0 … B − 1 when None. Errors are those of decode, also for another
        number of sequences than tokens; then no sequence of the cache has changed.
        """
        # TODO s12.2: one row per sequence
        raise NotImplementedError("s12.2")
