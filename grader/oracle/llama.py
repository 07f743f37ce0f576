"""The whole Llama model in NumPy: in float32, with Hugging Face's bf16 roundings, or with operations done elsewhere.

`LlamaOracle.forward` walks through the model and leaves the arithmetic to an `Operations` object:

- `FLOAT32` computes in float32; its results stand for the right ones.
- `HUGGING_FACE_BF16` rounds to bf16 wherever Hugging Face's modules do; its distance from FLOAT32 is the yardstick
  of what bf16 may cost.
- `Replaced(rmsnorm=function)` computes in float32, but sends one operation, or several, elsewhere: to a student's
  kernel. This is how a plug-in check runs a kernel inside the model:

      def rmsnorm(x, weight, eps):
          return worker.launch("rmsnorm", Out(x.shape), x, weight, eps)

      logits = tiny.oracle.forward(reference.ids, Replaced(rmsnorm=rmsnorm)).logits
      expect_rows(logits, reference.float32.logits, reference.bf16.logits)

Arrays between operations are float32; in bf16 mode they hold numbers that bf16 can represent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from given.config import LlamaConfig
from given.contracts import BF16
from numpy.typing import ArrayLike, NDArray

from grader.model.weight_shapes import weight_shapes
from grader.oracle import operations as reference

Floats = NDArray[np.float32]


class Forward(NamedTuple):
    """What a forward pass gives for T tokens."""

    logits: Floats
    """[T, vocabulary]."""
    states: list[Floats]
    """num_layers + 1 arrays [T, hidden]: the embedding's output, then the residual stream after each block."""


class Operations:
    """The operations of the model in float32. All arrays are float32 but `ids` and `positions`, which are int32.

    A method takes what the launcher of the same name takes, without the output, and returns the output. `linear` is
    every matrix product but the last, `head`, whose output is the logits.
    """

    def embedding(self, table: Floats, ids: NDArray[np.int32]) -> Floats:
        """table [vocabulary, hidden], ids [T] → [T, hidden]."""
        return table[ids]

    def rmsnorm(self, x: Floats, weight: Floats, eps: float) -> Floats:
        """x [T, hidden], weight [hidden] → [T, hidden]."""
        return self._normed(x, eps) * weight

    def linear(self, x: Floats, weight: Floats) -> Floats:
        """x [T, inputs], weight [outputs, inputs] → [T, outputs]."""
        return np.asarray(x @ weight.T)

    def head(self, x: Floats, weight: Floats) -> Floats:
        """x [T, hidden], weight [vocabulary, hidden] → logits [T, vocabulary]; a kernel gives float32 here."""
        return np.asarray(x @ weight.T)

    def rope_tables(self, config: LlamaConfig, length: int) -> tuple[Floats, Floats]:
        """cos and sin, each [length, head_dim / 2]."""
        cos, sin = reference.rope_tables(config, length)
        return cos.values.astype(np.float32), sin.values.astype(np.float32)

    def rope(
        self, q: Floats, k: Floats, cos: Floats, sin: Floats, positions: NDArray[np.int32]
    ) -> tuple[Floats, Floats]:
        """q [T, heads, D] and k [T, kv_heads, D], both turned."""
        cos, sin = (np.concatenate([table, table], axis=-1)[positions][:, None] for table in (cos, sin))
        return self._turned(q, cos, sin), self._turned(k, cos, sin)

    def attention(self, q: Floats, k: Floats, v: Floats, scale: float) -> Floats:
        """q [L, heads, D], k and v [S, kv_heads, D] → [L, heads, D]; causal, the last query sees all keys."""
        group = q.shape[1] // k.shape[1]
        queries, keys, values = (np.moveaxis(array, 1, 0) for array in (q, k, v))
        keys, values = np.repeat(keys, group, axis=0), np.repeat(values, group, axis=0)
        scores = self._scores(queries, keys, np.float32(scale))
        scores = np.where(reference.causal_mask(len(q), len(k)), scores, np.float32(-np.inf))
        probabilities = self.softmax(scores.reshape(-1, len(k))).reshape(scores.shape)
        return np.moveaxis(self._weighted(probabilities, values), 0, 1)

    def softmax(self, x: Floats) -> Floats:
        """x [rows, columns]; attention calls it once, with a row for each head and query, −infinity where masked."""
        exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))

    def silu_mul(self, gate: Floats, up: Floats) -> Floats:
        """gate and up [T, intermediate] → [T, intermediate]."""
        return self._silu(gate) * up

    def residual_add(self, x: Floats, y: Floats) -> Floats:
        """x and y [T, hidden] → x + y."""
        return x + y

    # Steps between which Hugging Face rounds

    def _normed(self, x: Floats, eps: float) -> Floats:
        return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)))

    def _turned(self, x: Floats, cos: Floats, sin: Floats) -> Floats:
        return x * cos + _rotate_half(x) * sin

    def _scores(self, queries: Floats, keys: Floats, scale: np.float32) -> Floats:
        return np.asarray(queries @ keys.swapaxes(1, 2)) * scale

    def _weighted(self, probabilities: Floats, values: Floats) -> Floats:
        return np.asarray(probabilities @ values)

    def _silu(self, gate: Floats) -> Floats:
        with np.errstate(over="ignore"):  # exp(−gate) may be infinite: then silu is −0, as it should be
            return np.asarray(gate / (1 + np.exp(-gate)))


class _HuggingFaceBf16(Operations):
    """The roundings of Hugging Face's Llama in bf16 with "eager" attention: after every operation, and inside them
    before the norm's weight, of the tables, of both products of a rotation, of scores before and after the scale, of
    probabilities, and before the gate's product."""

    def rmsnorm(self, x: Floats, weight: Floats, eps: float) -> Floats:
        return round_bf16(round_bf16(self._normed(x, eps)) * weight)

    def linear(self, x: Floats, weight: Floats) -> Floats:
        return round_bf16(x @ weight.T)

    def head(self, x: Floats, weight: Floats) -> Floats:
        return round_bf16(x @ weight.T)

    def rope_tables(self, config: LlamaConfig, length: int) -> tuple[Floats, Floats]:
        cos, sin = super().rope_tables(config, length)
        return round_bf16(cos), round_bf16(sin)

    def softmax(self, x: Floats) -> Floats:
        return round_bf16(super().softmax(x))

    def silu_mul(self, gate: Floats, up: Floats) -> Floats:
        return round_bf16(round_bf16(self._silu(gate)) * up)

    def residual_add(self, x: Floats, y: Floats) -> Floats:
        return round_bf16(x + y)

    def _turned(self, x: Floats, cos: Floats, sin: Floats) -> Floats:
        return round_bf16(round_bf16(x * cos) + round_bf16(_rotate_half(x) * sin))

    def _scores(self, queries: Floats, keys: Floats, scale: np.float32) -> Floats:
        return round_bf16(round_bf16(queries @ keys.swapaxes(1, 2)) * scale)

    def _weighted(self, probabilities: Floats, values: Floats) -> Floats:
        return round_bf16(probabilities @ values)


class Replaced(Operations):
    """float32 arithmetic, with the named methods of Operations replaced by functions.

    A function gets what the kernel of the same name gets: arrays as bf16, but the float32 ones of the contract
    (softmax's x; rope's cos and sin) and int32 ids and positions; scalars as they are. It returns the output, for rope
    the pair (q, k). Raises TypeError for a name that is no operation.
    """

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            if name.startswith("_") or not hasattr(Operations, name):
                raise TypeError(f"{name!r} is no operation of the model")
            setattr(self, name, _rounding_inputs(function, _FLOAT32_ARGUMENTS.get(name, ())))


FLOAT32 = Operations()
HUGGING_FACE_BF16 = _HuggingFaceBf16()

_FLOAT32_ARGUMENTS = {"softmax": (0,), "rope": (2, 3)}


def _rounding_inputs(function: Callable[..., Any], float32_arguments: Sequence[int]) -> Callable[..., Any]:
    """`function` called with bf16 arrays where it is given float32 ones; its results become float32."""

    def call(*arguments: Any) -> Any:
        def rounded(index: int, value: Any) -> Any:
            is_float = isinstance(value, np.ndarray) and value.dtype == np.float32
            return value.astype(BF16) if is_float and index not in float32_arguments else value

        result = function(*(rounded(index, value) for index, value in enumerate(arguments)))
        if isinstance(result, tuple | list):
            return tuple(np.asarray(array).astype(np.float32) for array in result)
        return np.asarray(result).astype(np.float32)

    return call


@dataclass(frozen=True)
class Reference:
    """A prompt and what the model gives for it: right (float32), and as far off as bf16 may be."""

    name: str
    ids: NDArray[np.int32]
    float32: Forward
    bf16: Forward
    last: int = 0
    """Only the logits of so many tokens at the end are here, and no hidden states; 0 for all."""

    @property
    def rows(self) -> slice:
        """Which rows of a forward pass's logits these are."""
        return slice(-self.last, None) if self.last else slice(None)


class LlamaOracle:
    """A Llama model: its configuration, and its weights as float32 arrays under Hugging Face's names."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, NDArray[Any]]) -> None:
        """A tied head may be absent. Raises ValueError when a weight is absent or has the wrong shape."""
        self.config = config
        self.weights = {name: np.asarray(weight).astype(np.float32) for name, weight in weights.items()}
        if config.tie_word_embeddings and "model.embed_tokens.weight" in self.weights:
            self.weights["lm_head.weight"] = self.weights["model.embed_tokens.weight"]
        for name, shape in weight_shapes(config).items():
            if name not in self.weights:
                raise ValueError(f"the weight {name} is missing")
            if self.weights[name].shape != shape:
                raise ValueError(
                    f"the weight {name} has shape {self.weights[name].shape}; the configuration says {shape}"
                )

    def forward(self, ids: ArrayLike, operations: Operations = FLOAT32) -> Forward:
        """Logits and hidden states of a prompt, ids [T] with T ≥ 1."""
        config, weights, do = self.config, self.weights, operations
        tokens = np.asarray(ids, np.int32)
        positions = np.arange(len(tokens), dtype=np.int32)
        tables = do.rope_tables(config, len(tokens))
        x = do.embedding(weights["model.embed_tokens.weight"], tokens)
        states = [x]
        for layer in range(config.num_layers):
            prefix = f"model.layers.{layer}."
            x = do.residual_add(x, self._attention(do, prefix, x, tables, positions))
            x = do.residual_add(x, self._feed_forward(do, prefix, x))
            states.append(x)
        normed = do.rmsnorm(x, weights["model.norm.weight"], config.rms_norm_eps)
        return Forward(do.head(normed, weights["lm_head.weight"]), states)

    def reference(self, name: str, ids: ArrayLike) -> Reference:
        """What a model that has no stored references is held against: both precisions from this oracle."""
        tokens = np.asarray(ids, np.int32)
        return Reference(name, tokens, self.forward(tokens), self.forward(tokens, HUGGING_FACE_BF16))

    def _attention(
        self, do: Operations, prefix: str, x: Floats, tables: tuple[Floats, Floats], positions: NDArray[np.int32]
    ) -> Floats:
        """What the attention of a block adds to the residual stream x [T, hidden]."""
        normed = do.rmsnorm(x, self.weights[f"{prefix}input_layernorm.weight"], self.config.rms_norm_eps)
        q, k, v = (
            do.linear(normed, self.weights[f"{prefix}self_attn.{name}_proj.weight"]).reshape(
                len(x), -1, self.config.head_dim
            )
            for name in "qkv"
        )
        q, k = do.rope(q, k, *tables, positions)
        attended = do.attention(q, k, v, self.config.head_dim**-0.5)
        return do.linear(attended.reshape(len(x), -1), self.weights[f"{prefix}self_attn.o_proj.weight"])

    def _feed_forward(self, do: Operations, prefix: str, x: Floats) -> Floats:
        """What the feed-forward layer of a block adds to the residual stream x [T, hidden]."""
        normed = do.rmsnorm(x, self.weights[f"{prefix}post_attention_layernorm.weight"], self.config.rms_norm_eps)
        gate, up = (do.linear(normed, self.weights[f"{prefix}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        return do.linear(do.silu_mul(gate, up), self.weights[f"{prefix}mlp.down_proj.weight"])


def round_bf16(x: ArrayLike) -> Floats:
    """The nearest bf16 numbers, as float32."""
    return np.asarray(x, np.float32).astype(BF16).astype(np.float32)


def _rotate_half(x: Floats) -> Floats:
    """(−second half, first half) of the last axis."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([-second, first], axis=-1)
