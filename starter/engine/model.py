"""The Llama model: weights on the GPU, and the forward pass as a sequence of kernel launches."""

from collections.abc import Sequence

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)


class LlamaModel:
    """A Llama model of one folder (config.json and safetensors), all weights on the GPU; `config` is an attribute."""

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
