"""An alternative solution, written from the handouts alone: the Llama model as functions over per-layer objects."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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


Attention = Callable[[int, GPUArray, GPUArray, GPUArray, GPUArray], None]
"""attention(layer, found, q, k, v) launches what lets each query find something in the values that it may see."""


@dataclass(frozen=True)
class Pass:
    """What all layers of one pass over tokens share: the configuration, each token's rotation, and how it attends."""

    config: LlamaConfig
    cos: GPUArray
    sin: GPUArray
    positions: GPUArray
    attention: Attention

    @property
    def num_tokens(self) -> int:
        return int(self.positions.size)


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
        self.scale = 1 / math.sqrt(c.head_dim)

    def forward(
        self, ids: Sequence[int] | np.ndarray, last_only: bool = False, hidden_states: bool = False
    ) -> np.ndarray | tuple[np.ndarray, list[np.ndarray]]:
        """Logits [tokens, vocab_size] float32 of a prompt; [1, vocab_size], of its last token, with last_only.

        With hidden_states returns (logits, states): num_layers + 1 arrays [tokens, hidden_size] bf16, the embedding's
        output and then the residual stream after each block, before the final norm.
        Raises ValueError for an empty prompt, one longer than max_position_embeddings, or an unknown id.
        """
        tokens = checked_ids(ids, self.config)

        def attention(layer: int, found: GPUArray, q: GPUArray, k: GPUArray, v: GPUArray) -> None:
            ops.attention(found, q, k, v, self.scale)

        states: list[np.ndarray] | None = [] if hidden_states else None
        hidden = self.run(tokens, np.arange(tokens.size), attention, states)
        rows = hidden[-1:] if last_only else hidden
        logits = project(normalised(rows, self.norm, self.config), self.head, FLOAT32).get()
        return logits if states is None else (logits, states)

    @cached_property
    def _rotations(self) -> list[GPUArray]:
        """cos and sin of all positions."""
        return [gpuarray.to_gpu(table) for table in rope_tables(self.config, self.config.max_position_embeddings)]

    def run(
        self, ids: np.ndarray, positions: np.ndarray, attention: Attention, states: list[np.ndarray] | None = None
    ) -> GPUArray:
        """The residual stream [tokens, hidden_size] behind the last block; copies of all before go to `states`."""
        shared = Pass(self.config, *self._rotations, integers(positions), attention)
        hidden = gpuarray.empty((shared.num_tokens, self.config.hidden_size), BF16)
        ops.embedding(hidden, self.embedding, integers(ids))
        for number, layer in enumerate(self.layers):
            if states is not None:
                states.append(hidden.get())
            attend(hidden, number, layer, shared)
            feed_forward(hidden, layer, shared)
        if states is not None:
            states.append(hidden.get())
        return hidden


def attend(hidden: GPUArray, number: int, layer: Layer, shared: Pass) -> None:
    """Add to the residual stream what attention finds in it."""
    c, num_tokens = shared.config, shared.num_tokens
    normed = normalised(hidden, layer.input_norm, c)
    q = project(normed, layer.q_proj).reshape(num_tokens, c.num_heads, c.head_dim)
    k = project(normed, layer.k_proj).reshape(num_tokens, c.num_kv_heads, c.head_dim)
    v = project(normed, layer.v_proj).reshape(num_tokens, c.num_kv_heads, c.head_dim)
    ops.rope(q, k, shared.cos, shared.sin, shared.positions)
    found = gpuarray.empty(q.shape, BF16)
    shared.attention(number, found, q, k, v)
    ops.residual_add(hidden, project(found.reshape(num_tokens, c.num_heads * c.head_dim), layer.o_proj))


def feed_forward(hidden: GPUArray, layer: Layer, shared: Pass) -> None:
    """Add to the residual stream what the SwiGLU block makes of it."""
    normed = normalised(hidden, layer.second_norm, shared.config)
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


def integers(array: np.ndarray) -> GPUArray:
    """A copy on the GPU, int32."""
    return gpuarray.to_gpu(np.ascontiguousarray(array, np.int32))


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


def checked_ids(ids: Sequence[int] | np.ndarray, config: LlamaConfig) -> np.ndarray:
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
