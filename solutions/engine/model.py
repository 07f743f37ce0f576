"""The Llama model: weights on the GPU, and the forward pass as a sequence of kernel launches.

Nothing is kept between calls but the weights and the buffers: every call computes all positions of its prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
from given import ops
from given.config import LlamaConfig
from pycuda import gpuarray
from pycuda.gpuarray import GPUArray

from .linear import linear
from .rope import rope_tables
from .weights import load_model_weights

BF16 = np.dtype(ml_dtypes.bfloat16)


class LlamaModel:
    """A Llama model of one folder (config.json and safetensors), all weights on the GPU."""

    def __init__(self, model_dir: str) -> None:
        """Load the weights; ConfigError and SafetensorsError, which name the file that is not usable, pass through."""
        # solution s08.2: upload each weight once, a tied head not twice
        self.config = LlamaConfig.from_folder(model_dir)
        weights = load_model_weights(model_dir)
        uploaded = {id(array): gpuarray.to_gpu(array) for array in weights.values()}
        self.weights = {name: uploaded[id(array)] for name, array in weights.items()}
        self.buffers: Buffers | None = None
        # end solution

    def forward(
        self, ids: Sequence[int] | np.ndarray, last_only: bool = False, hidden_states: bool = False
    ) -> np.ndarray | tuple[np.ndarray, list[np.ndarray]]:
        """Logits [tokens, vocab_size] float32 of a prompt; [1, vocab_size], of its last token, with last_only.

        With hidden_states returns (logits, states): num_layers + 1 arrays [tokens, hidden_size] bf16, the embedding's
        output and then the residual stream after each block, before the final norm.
        Raises ValueError for an empty prompt, one longer than max_position_embeddings, or an unknown id.
        """
        # solution s08.2: embedding, the blocks, the final norm, the head
        buffers = self._prepare(np.asarray(ids))
        ops.embedding(buffers.hidden, self.weights["model.embed_tokens.weight"], buffers.ids)
        states = [buffers.hidden.get()] if hidden_states else []
        for layer in range(self.config.num_layers):
            self._attention(f"model.layers.{layer}.", buffers)
            self._feed_forward(f"model.layers.{layer}.", buffers)
            if hidden_states:
                states.append(buffers.hidden.get())
        rows = slice(-1, None) if last_only else slice(None)
        logits = self._head(buffers.hidden[rows], buffers.normed[rows])
        return (logits, states) if hidden_states else logits
        # end solution

    # solution s08.2
    def _prepare(self, ids: np.ndarray) -> "Buffers":
        """The buffers for a prompt of this length, its ids uploaded."""
        config = self.config
        if ids.ndim != 1 or not 1 <= len(ids) <= config.max_position_embeddings:
            raise ValueError(f"a prompt is 1 to {config.max_position_embeddings} ids, not of shape {ids.shape}")
        if not np.issubdtype(ids.dtype, np.integer) or ids.min() < 0 or ids.max() >= config.vocab_size:
            raise ValueError(f"ids must be integers from 0 to {config.vocab_size - 1}")
        if self.buffers is None or len(ids) != self.buffers.ids.size:
            self.buffers = Buffers.allocate(config, len(ids))
        self.buffers.ids.set(ids.astype(np.int32))
        return self.buffers

    def _attention(self, prefix: str, buffers: "Buffers") -> None:
        """hidden += output projection of attention over the normalised hidden states."""
        config, weights, b = self.config, self.weights, buffers
        ops.rmsnorm(b.normed, b.hidden, weights[prefix + "input_layernorm.weight"], config.rms_norm_eps)
        for name, out in (("q", b.q), ("k", b.k), ("v", b.v)):
            linear(_rows(out), b.normed, weights[f"{prefix}self_attn.{name}_proj.weight"])
        ops.rope(b.q, b.k, b.cos, b.sin, b.positions)
        ops.attention(b.attended, b.q, b.k, b.v, config.head_dim**-0.5)
        linear(b.branch, _rows(b.attended), weights[prefix + "self_attn.o_proj.weight"])
        ops.residual_add(b.hidden, b.branch)

    def _feed_forward(self, prefix: str, buffers: "Buffers") -> None:
        """hidden += SwiGLU of the normalised hidden states."""
        weights, b = self.weights, buffers
        ops.rmsnorm(b.normed, b.hidden, weights[prefix + "post_attention_layernorm.weight"], self.config.rms_norm_eps)
        linear(b.gate, b.normed, weights[prefix + "mlp.gate_proj.weight"])
        linear(b.up, b.normed, weights[prefix + "mlp.up_proj.weight"])
        ops.silu_mul(b.gated, b.gate, b.up)
        linear(b.branch, b.gated, weights[prefix + "mlp.down_proj.weight"])
        ops.residual_add(b.hidden, b.branch)

    def _head(self, hidden: GPUArray, normed: GPUArray) -> np.ndarray:
        """Logits [rows, vocab_size] float32 of these rows of the residual stream, and of no others."""
        ops.rmsnorm(normed, hidden, self.weights["model.norm.weight"], self.config.rms_norm_eps)
        logits = gpuarray.empty((hidden.shape[0], self.config.vocab_size), np.float32)
        linear(logits, normed, self.weights["lm_head.weight"])
        return logits.get()

    # end solution


# solution s08.2
@dataclass
class Buffers:
    """What a forward pass over one number of tokens reads and writes; allocated once for a length, then reused."""

    ids: GPUArray  # [tokens] int32
    positions: GPUArray  # [tokens] int32: 0, 1, 2 …
    cos: GPUArray  # [tokens, head_dim / 2] float32
    sin: GPUArray
    hidden: GPUArray  # [tokens, hidden_size] bf16: the residual stream
    normed: GPUArray  # [tokens, hidden_size]
    branch: GPUArray  # [tokens, hidden_size]: what attention or the feed-forward block adds to the stream
    q: GPUArray  # [tokens, num_heads, head_dim]
    k: GPUArray  # [tokens, num_kv_heads, head_dim]
    v: GPUArray
    attended: GPUArray  # [tokens, num_heads, head_dim]
    gate: GPUArray  # [tokens, intermediate_size]
    up: GPUArray
    gated: GPUArray

    @classmethod
    def allocate(cls, config: LlamaConfig, tokens: int) -> "Buffers":
        def empty(*shape: int) -> GPUArray:
            return gpuarray.empty((tokens, *shape), BF16)

        cos, sin = rope_tables(config, tokens)
        hidden, inner = config.hidden_size, config.intermediate_size
        heads, kv_heads = (config.num_heads, config.head_dim), (config.num_kv_heads, config.head_dim)
        return cls(
            ids=gpuarray.empty(tokens, np.int32),
            positions=gpuarray.to_gpu(np.arange(tokens, dtype=np.int32)),
            cos=gpuarray.to_gpu(cos),
            sin=gpuarray.to_gpu(sin),
            hidden=empty(hidden),
            normed=empty(hidden),
            branch=empty(hidden),
            q=empty(*heads),
            k=empty(*kv_heads),
            v=empty(*kv_heads),
            attended=empty(*heads),
            gate=empty(inner),
            up=empty(inner),
            gated=empty(inner),
        )


def _rows(array: GPUArray) -> GPUArray:
    """A view of [tokens, heads, head_dim] as the matrix [tokens, heads · head_dim] that a linear layer takes."""
    return array.reshape(array.shape[0], -1)


# end solution
