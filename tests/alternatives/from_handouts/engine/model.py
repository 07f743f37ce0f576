"""An alternative solution, written from the handouts alone: the Llama model as functions over per-layer objects."""

import math
from collections.abc import Mapping, Sequence
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
from .weights import SafetensorsError, load_model_weights

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Layer:
    """The weights of one block."""

    input_norm: GPUArray
    q_proj: GPUArray
    k_proj: GPUArray
    v_proj: GPUArray
    o_proj: GPUArray
    second_norm: GPUArray
    gate_proj: GPUArray
    up_proj: GPUArray
    down_proj: GPUArray


@dataclass(frozen=True)
class Prompt:
    """What all layers of one forward pass share: the configuration and the rotation of every position."""

    config: LlamaConfig
    num_tokens: int
    cos: GPUArray
    sin: GPUArray
    positions: GPUArray

    @classmethod
    def of_length(cls, config: LlamaConfig, num_tokens: int) -> "Prompt":
        cos, sin = rope_tables(config, num_tokens)
        positions = np.arange(num_tokens, dtype=np.int32)
        return cls(config, num_tokens, *(gpuarray.to_gpu(array) for array in (cos, sin, positions)))


class LlamaModel:
    """A Llama model of one folder (config.json and safetensors), all weights on the GPU."""

    def __init__(self, model_dir: str) -> None:
        """Load the weights; raises ConfigError or SafetensorsError, naming the file, when the folder is not usable."""
        self.config = LlamaConfig.from_folder(model_dir)
        upload = _Upload(str(model_dir), load_model_weights(model_dir))
        c = self.config
        self.embedding = upload("model.embed_tokens.weight", c.vocab_size, c.hidden_size)
        self.layers = [_load_layer(upload, c, f"model.layers.{n}") for n in range(c.num_layers)]
        self.norm = upload("model.norm.weight", c.hidden_size)
        tied = self.config.tie_word_embeddings
        self.head = self.embedding if tied else upload("lm_head.weight", c.vocab_size, c.hidden_size)

    def forward(
        self, ids: Sequence[int] | np.ndarray, last_only: bool = False, hidden_states: bool = False
    ) -> np.ndarray | tuple[np.ndarray, list[np.ndarray]]:
        """Logits [tokens, vocab_size] float32 of a prompt; [1, vocab_size], of its last token, with last_only.

        With hidden_states returns (logits, states): num_layers + 1 arrays [tokens, hidden_size] bf16, the embedding's
        output and then the residual stream after each block, before the final norm.
        Raises ValueError for an empty prompt, one longer than max_position_embeddings, or an unknown id.
        """
        tokens = gpuarray.to_gpu(_checked_ids(ids, self.config))
        prompt = Prompt.of_length(self.config, tokens.size)
        hidden = gpuarray.empty((prompt.num_tokens, self.config.hidden_size), BF16)
        ops.embedding(hidden, self.embedding, tokens)
        states = [hidden.get()] if hidden_states else []
        for layer in self.layers:
            attend(hidden, layer, prompt)
            feed_forward(hidden, layer, prompt)
            if hidden_states:
                states.append(hidden.get())
        rows = hidden[-1:] if last_only else hidden
        logits = project(normalised(rows, self.norm, self.config), self.head, FLOAT32).get()
        return (logits, states) if hidden_states else logits


def attend(hidden: GPUArray, layer: Layer, prompt: Prompt) -> None:
    """Add to the residual stream what attention finds in it."""
    c, num_tokens = prompt.config, prompt.num_tokens
    normed = normalised(hidden, layer.input_norm, c)
    q = project(normed, layer.q_proj).reshape(num_tokens, c.num_heads, c.head_dim)
    k = project(normed, layer.k_proj).reshape(num_tokens, c.num_kv_heads, c.head_dim)
    v = project(normed, layer.v_proj).reshape(num_tokens, c.num_kv_heads, c.head_dim)
    ops.rope(q, k, prompt.cos, prompt.sin, prompt.positions)
    found = gpuarray.empty(q.shape, BF16)
    ops.attention(found, q, k, v, 1 / math.sqrt(c.head_dim))
    ops.residual_add(hidden, project(found.reshape(num_tokens, c.num_heads * c.head_dim), layer.o_proj))


def feed_forward(hidden: GPUArray, layer: Layer, prompt: Prompt) -> None:
    """Add to the residual stream what the SwiGLU block makes of it."""
    normed = normalised(hidden, layer.second_norm, prompt.config)
    gate, up = project(normed, layer.gate_proj), project(normed, layer.up_proj)
    joined = gpuarray.empty(gate.shape, BF16)
    ops.silu_mul(joined, gate, up)
    ops.residual_add(hidden, project(joined, layer.down_proj))


def normalised(x: GPUArray, weight: GPUArray, config: LlamaConfig) -> GPUArray:
    out = gpuarray.empty(x.shape, BF16)
    ops.rmsnorm(out, x, weight, config.rms_norm_eps)
    return out


def project(x: GPUArray, weight: GPUArray, dtype: np.dtype = BF16) -> GPUArray:
    out = gpuarray.empty((x.shape[0], weight.shape[0]), dtype)
    linear(out, x, weight)
    return out


class _Upload:
    """Puts named weights on the GPU, after a look at shape and dtype."""

    def __init__(self, folder: str, weights: Mapping[str, np.ndarray]) -> None:
        self.folder, self.weights = folder, weights

    def __call__(self, name: str, *shape: int) -> GPUArray:
        if name not in self.weights:
            raise SafetensorsError(f"{self.folder}: the tensor {name!r} is missing")
        array = self.weights[name]
        if array.shape != shape or array.dtype != BF16:
            raise SafetensorsError(
                f"{self.folder}: the tensor {name!r} is {array.dtype} {array.shape}, wanted {BF16} {shape}"
            )
        return gpuarray.to_gpu(array)


def _load_layer(upload: _Upload, c: LlamaConfig, prefix: str) -> Layer:
    queries, keys = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    return Layer(
        input_norm=upload(f"{prefix}.input_layernorm.weight", c.hidden_size),
        q_proj=upload(f"{prefix}.self_attn.q_proj.weight", queries, c.hidden_size),
        k_proj=upload(f"{prefix}.self_attn.k_proj.weight", keys, c.hidden_size),
        v_proj=upload(f"{prefix}.self_attn.v_proj.weight", keys, c.hidden_size),
        o_proj=upload(f"{prefix}.self_attn.o_proj.weight", c.hidden_size, queries),
        second_norm=upload(f"{prefix}.post_attention_layernorm.weight", c.hidden_size),
        gate_proj=upload(f"{prefix}.mlp.gate_proj.weight", c.intermediate_size, c.hidden_size),
        up_proj=upload(f"{prefix}.mlp.up_proj.weight", c.intermediate_size, c.hidden_size),
        down_proj=upload(f"{prefix}.mlp.down_proj.weight", c.hidden_size, c.intermediate_size),
    )


def _checked_ids(ids: Sequence[int] | np.ndarray, config: LlamaConfig) -> np.ndarray:
    array = np.asarray(ids)
    if array.ndim != 1 or not 1 <= array.size <= config.max_position_embeddings:
        raise ValueError(
            f"a prompt is a list of 1 to {config.max_position_embeddings} ids, not an array of shape {array.shape}"
        )
    if array.dtype.kind not in "iu":
        raise ValueError(f"ids are integers, not {array.dtype}")
    if array.min() < 0 or array.max() >= config.vocab_size:
        raise ValueError(f"ids are 0 to {config.vocab_size - 1}; there are {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, np.int32)
