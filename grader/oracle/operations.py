"""One reference per operation: float64 on the operation's own (bf16) inputs, with each value's allowed error.

Shapes are those of the launchers in `grader/given/ops.py`. The tolerances are the contract's ("Numerics" in DESIGN.md).
"""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from grader.compare import Expected, attention_allowed, bf16_allowed, rope_tables_allowed, softmax_allowed
from grader.given.config import LlamaConfig

Array = NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)


def vector_add(x: Array, y: Array) -> Expected:
    """x + y in float32, [n]; exact, as there is one rounding."""
    return Expected(np.asarray(x) + np.asarray(y), 0, np.float32)


def embedding(table: Array, ids: Array) -> Expected:
    """Row ids[t] of table [V, H] for each token t: [T, H]; exact."""
    return Expected(np.asarray(table)[np.asarray(ids)], 0, BF16)


def residual_add(x: Array, y: Array) -> Expected:
    """x + y, both [T, H], rounded once: exact."""
    with np.errstate(all="ignore"):
        total = _wide(x) + _wide(y)
    return Expected(total, bf16_allowed(total, np.abs(_wide(x)) + np.abs(_wide(y))), BF16)


def silu_mul(gate: Array, up: Array) -> Expected:
    """gate · sigmoid(gate) · up, both [T, I]; a second rounding, of silu(gate), is allowed."""
    g, u = _wide(gate), _wide(up)
    with np.errstate(all="ignore"):
        sigmoid = np.where(g >= 0, 1 / (1 + np.exp(-g)), np.exp(g) / (1 + np.exp(g)))
        product = g * sigmoid * u
    return Expected(product, bf16_allowed(product, np.abs(product), 2), BF16)


def rmsnorm(x: Array, weight: Array, eps: float) -> Expected:
    """x / sqrt(mean(x²) + eps) · weight for each row of x [T, H]; rounding before the weight too is allowed."""
    values = _wide(x)
    mean = np.mean(values**2, axis=-1, keepdims=True) if values.size else values[:, :1]
    result = values / np.sqrt(mean + np.float64(np.float32(eps))) * _wide(weight)
    return Expected(result, bf16_allowed(result, np.abs(result), 2), BF16)


def rope_tables(config: LlamaConfig, length: int) -> tuple[Expected, Expected]:
    """cos and sin of position · frequency, [length, D/2] float32, with Llama 3's scaling of the frequencies."""
    angles = np.arange(length, dtype=np.float64)[:, None] * rope_frequencies(config)
    allowed = rope_tables_allowed(angles)
    return Expected(np.cos(angles), allowed, np.float32), Expected(np.sin(angles), allowed, np.float32)


def rope_frequencies(config: LlamaConfig) -> NDArray[np.float64]:
    """Radians per position of each pair, [D/2]; the scaling is that of Llama 3.1's release."""
    frequencies = float(config.rope_theta) ** (-np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    turns = scaling.original_max_position_embeddings * frequencies / (2 * np.pi)
    smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    smooth = np.clip(smooth, 0, 1)
    return (1 - smooth) * frequencies / scaling.factor + smooth * frequencies


def rope(q: Array, k: Array, cos: Array, sin: Array, positions: Array) -> tuple[Expected, Expected]:
    """q [T, Hq, D], k [T, Hkv, D] turned by the rows `positions` [T] of the tables [length, D/2]; pairs i, i + D/2."""
    c, s = _wide(cos)[positions][:, None], _wide(sin)[positions][:, None]
    return _rotated(q, c, s), _rotated(k, c, s)


def _rotated(heads: Array, c: Array, s: Array) -> Expected:
    first, second = np.split(_wide(heads), 2, axis=-1)
    result = np.concatenate([first * c - second * s, second * c + first * s], axis=-1)
    a, b, c, s = np.abs(first), np.abs(second), np.abs(c), np.abs(s)
    return Expected(result, bf16_allowed(result, np.concatenate([a * c + b * s, b * c + a * s], axis=-1)), BF16)


def softmax(x: Array) -> Expected:
    """exp(x) / Σ exp(x) for each row of x [R, N] float32; −inf gives 0, and a row has at least one finite entry."""
    values = _wide(x)
    if not values.size:
        return Expected(values, 0, np.float32)
    weights = np.exp(values - values.max(axis=-1, keepdims=True))
    result = weights / weights.sum(axis=-1, keepdims=True)
    return Expected(result, softmax_allowed(result), np.float32)


def matmul(x: Array, w: Array, dtype: DTypeLike = BF16) -> Expected:
    """x [M, K] times the transpose of w [N, K]: [M, N], bf16 or (the head's logits) float32."""
    left, right = _wide(x), _wide(w)
    result, terms = left @ right.T, np.abs(left) @ np.abs(right).T
    if np.dtype(dtype) == BF16:
        return Expected(result, bf16_allowed(result, terms), BF16)
    return Expected(result, 2.0**-18 * terms + 2.0**-100, dtype)


def attention(q: Array, k: Array, v: Array, scale: float) -> Expected:
    """Causal attention of q [L, Hq, D] to k, v [S, Hkv, D]: query i sees the keys 0 … S − L + i; none gives zeros."""
    queries, keys, values = _wide(q), _wide(k), _wide(v)
    group = queries.shape[1] // keys.shape[1]
    keys, values = (np.repeat(array, group, axis=1).transpose(1, 0, 2) for array in (keys, values))
    queries = queries.transpose(1, 0, 2)
    visible = np.arange(len(k)) <= len(k) - len(q) + np.arange(len(q))[:, None]
    scale = float(np.float32(scale))
    scores = np.where(visible, queries @ keys.transpose(0, 2, 1) * scale, -np.inf)
    sizes = np.where(visible, np.abs(queries) @ np.abs(keys).transpose(0, 2, 1) * abs(scale), 0)
    maximum = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.where(visible, np.exp(scores - np.where(np.isfinite(maximum), maximum, 0)), 0)
    weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    result, terms = (weights @ part for part in (values, np.abs(values)))
    allowed = attention_allowed(result, terms, sizes.max(axis=-1, keepdims=True, initial=0))
    return Expected(result.transpose(1, 0, 2), allowed.transpose(1, 0, 2), BF16)


def argmax(x: Array) -> Expected:
    """Index of each row's largest value, the lowest on a tie: [R] int32 for x [R, N]; exact."""
    return Expected(np.argmax(np.asarray(x), axis=-1), 0, np.int32)


def _wide(array: Array) -> NDArray[np.float64]:
    return np.asarray(array).astype(np.float64)
