"""The Llama model: weights on the GPU, and the forward pass as a sequence of kernel launches."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given import ops
from given.config import LlamaConfig
from pycuda import gpuarray
from pycuda.gpuarray import GPUArray

from .linear import linear
from .rope import rope_tables
from .step_buffers import Activations
from .weights import load_model_weights


class LlamaModel:
    """A Llama model of one folder (config.json and safetensors), all weights on the GPU; `config` is an attribute."""

    def __init__(self, model_dir: str) -> None:
        """Load the weights; ConfigError and SafetensorsError, which name the file that is not usable, pass through."""
        # s08.2: upload each weight once, a tied head not twice
        self.config = LlamaConfig.from_folder(model_dir)
        weights = load_model_weights(model_dir)
        uploaded = {id(array): gpuarray.to_gpu(array) for array in weights.values()}
        self.weights = {name: uploaded[id(array)] for name, array in weights.items()}
        self.layers = [LayerWeights.of(self.weights, layer) for layer in range(self.config.num_layers)]
        self.cos, self.sin = map(gpuarray.to_gpu, rope_tables(self.config, self.config.max_position_embeddings))
        self.scale = self.config.head_dim**-0.5

    def forward(
        self, ids: Sequence[int] | np.ndarray, last_only: bool = False, hidden_states: bool = False
    ) -> np.ndarray | tuple[np.ndarray, list[np.ndarray]]:
        """Logits [tokens, vocab_size] float32 of a prompt; [1, vocab_size], of its last token, with last_only.

        With hidden_states returns (logits, states): num_layers + 1 arrays [tokens, hidden_size] bf16, the embedding's
        output and then the residual stream after each block, before the final norm.
        Raises ValueError for an empty prompt, one longer than max_position_embeddings, or an unknown id.
        """
        # s08.2: embedding, the blocks, the final norm, the head
        prompt = self.checked(ids)
        positions = np.arange(len(prompt), dtype=np.int32)
        a = Activations.allocate(self.config, len(prompt))
        states: list[np.ndarray] = []

        def attend(layer: int) -> None:
            ops.attention(a.attended, a.q, a.k, a.v, self.scale)

        device_ids = gpuarray.to_gpu(prompt.astype(np.int32))
        self.run(a, device_ids, gpuarray.to_gpu(positions), attend, states=states if hidden_states else None)
        rows = slice(-1, None) if last_only else slice(None)
        hidden, normed = a.hidden[rows], a.normed[rows]
        logits = gpuarray.empty((hidden.shape[0], self.config.vocab_size), np.float32)
        self.head(logits, hidden, normed)
        return (logits.get(), states) if hidden_states else logits.get()

    def checked(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The ids as an array; raises ValueError for what is not a list of ids, or too long."""
        longest, vocab_size = self.config.max_position_embeddings, self.config.vocab_size
        ids = np.asarray(ids)
        if ids.ndim != 1 or not 1 <= len(ids) <= longest:
            raise ValueError(f"wanted a list of 1 to {longest} ids, not shape {ids.shape}")
        if not np.issubdtype(ids.dtype, np.integer) or ids.min() < 0 or ids.max() >= vocab_size:
            raise ValueError(f"ids must be integers from 0 to {vocab_size - 1}")
        return ids

    def run(
        self,
        a: Activations,
        ids: GPUArray,
        positions: GPUArray,
        attend: Callable[[int], None],
        stream: cuda.Stream | None = None,
        states: list[np.ndarray] | None = None,
    ) -> None:
        """Launch the embedding and all blocks: a.hidden becomes the residual stream [tokens, hidden_size].

        `attend(layer)` launches a.attended = attention of a.q, and keeps what it will of a.k and a.v. Copies of the
        hidden states are appended to `states`, if that is given.
        """
        ops.embedding(a.hidden, self.weights["model.embed_tokens.weight"], ids, stream)
        for layer, weights in enumerate(self.layers):
            if states is not None:
                states.append(a.hidden.get())
            self._attention(weights, a, positions, partial(attend, layer), stream)
            self._feed_forward(weights, a, stream)
        if states is not None:
            states.append(a.hidden.get())

    def head(self, logits: GPUArray, hidden: GPUArray, normed: GPUArray, stream: cuda.Stream | None = None) -> None:
        """Launch the logits [rows, vocab_size] float32 of these rows of the residual stream, and of no others."""
        ops.rmsnorm(normed, hidden, self.weights["model.norm.weight"], self.config.rms_norm_eps, stream)
        linear(logits, normed, self.weights["lm_head.weight"], stream)

    def _attention(
        self,
        w: "LayerWeights",
        a: Activations,
        positions: GPUArray,
        attend: Callable[[], None],
        stream: cuda.Stream | None,
    ) -> None:
        """hidden += output projection of attention over the normalised hidden states."""
        ops.rmsnorm(a.normed, a.hidden, w.attention_norm, self.config.rms_norm_eps, stream)
        linear(a.q_rows, a.normed, w.q, stream)
        linear(a.k_rows, a.normed, w.k, stream)
        linear(a.v_rows, a.normed, w.v, stream)
        ops.rope(a.q, a.k, self.cos, self.sin, positions, stream)
        attend()
        linear(a.branch, a.attended_rows, w.o, stream)
        ops.residual_add(a.hidden, a.branch, stream)

    def _feed_forward(self, w: "LayerWeights", a: Activations, stream: cuda.Stream | None) -> None:
        """hidden += SwiGLU of the normalised hidden states."""
        ops.rmsnorm(a.normed, a.hidden, w.feed_forward_norm, self.config.rms_norm_eps, stream)
        linear(a.gate, a.normed, w.gate, stream)
        linear(a.up, a.normed, w.up, stream)
        ops.silu_mul(a.gated, a.gate, a.up, stream)
        linear(a.branch, a.gated, w.down, stream)
        ops.residual_add(a.hidden, a.branch, stream)


class LayerWeights(NamedTuple):
    """The weights of one block. Looked up once: a name for each launch would cost more than the launch."""

    attention_norm: GPUArray
    q: GPUArray
    k: GPUArray
    v: GPUArray
    o: GPUArray
    feed_forward_norm: GPUArray
    gate: GPUArray
    up: GPUArray
    down: GPUArray

    @classmethod
    def of(cls, weights: dict[str, GPUArray], layer: int) -> "LayerWeights":
        names = [
            "input_layernorm",
            *(f"self_attn.{name}_proj" for name in "qkvo"),
            "post_attention_layernorm",
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        ]
        return cls(*(weights[f"model.layers.{layer}.{name}.weight"] for name in names))
