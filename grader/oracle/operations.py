"""One reference per operation: float64 arithmetic on the inputs that a kernel gets, and the error each value may have.

The tolerances live in `grader.judge.compare`; a function here supplies what they need: the result and the sum of the
absolute values of what is added up for it. Nothing here warns or raises for infinities, NaN or sizes of 0: a kernel
meets them too.
"""

import numpy as np
from given.config import Llama3RopeScaling, LlamaConfig
from given.contracts import BF16
from numpy.typing import DTypeLike, NDArray

from grader.judge.compare import (
    Expected,
    attention_allowed,
    bf16_allowed,
    float32_allowed,
    rope_tables_allowed,
    softmax_allowed,
)

Array = NDArray[np.generic]
Values = NDArray[np.float64]


SMALLEST_SIGMOID = 2.0**-125
"""Below it a float32 sigmoid may be 0: exp(−gate) overflows, or a fast division by it gives 0."""


def vector_add(x: Array, y: Array) -> Expected:
    """x + y, both [n] float32; exact."""
    with np.errstate(all="ignore"):
        return Expected(np.add(x, y, dtype=np.float32), 0, np.float32)


def embedding(table: Array, ids: Array) -> Expected:
    """Row `ids[t]` of table [vocabulary, hidden] for each token; exact."""
    return Expected(table[ids], 0, table.dtype)


def residual_add(x: Array, y: Array) -> Expected:
    """x + y, of any one shape, rounded to the nearest; exact: float32 holds the sum, or what decides its rounding."""
    with np.errstate(all="ignore"):
        return Expected((_float64(x) + _float64(y)).astype(BF16), 0, BF16)


def silu_mul(gate: Array, up: Array) -> Expected:
    """silu(gate) · up, of any one shape; silu(gate) may be rounded to bf16 before the product.

    Where the sigmoid is below float32's normal numbers, the result may be 0.
    """
    with np.errstate(all="ignore"):
        a, b = _float64(gate), _float64(up)
        sigmoid = np.where(a < 0, np.exp(np.minimum(a, 0)), 1.0) / (1.0 + np.exp(-np.abs(a)))
        product = np.asarray(a * sigmoid * b)
        vanishing = np.where(sigmoid < SMALLEST_SIGMOID, np.abs(product), 0.0)
        return Expected(product, bf16_allowed(product, np.abs(product), roundings=2) + vanishing, BF16)


def rmsnorm(x: Array, weight: Array, eps: float) -> Expected:
    """x / √(mean(x²) + eps) · weight by rows; x [tokens, hidden], weight [hidden]; it may round before the weight."""
    with np.errstate(all="ignore"):
        rows = _float64(x)
        mean_square = np.mean(rows**2, axis=-1, keepdims=True)
        normed = rows / np.sqrt(mean_square + float(np.float32(eps))) * _float64(weight)
        return Expected(normed, bf16_allowed(normed, np.abs(normed), roundings=2), BF16)


def rope_frequencies(config: LlamaConfig) -> Values:
    """Radians per position of each pair, [head_dim / 2]: theta^(−2i / head_dim), scaled as Llama 3 does if asked."""
    frequencies = config.rope_theta ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    return frequencies if config.rope_scaling is None else _scale_frequencies(frequencies, config.rope_scaling)


def _scale_frequencies(frequencies: Values, scaling: Llama3RopeScaling) -> Values:
    wavelengths = 2 * np.pi / frequencies
    turns = scaling.original_max_position_embeddings / wavelengths
    smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blended = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    short, long = turns > scaling.high_freq_factor, turns < scaling.low_freq_factor
    return np.where(short, frequencies, np.where(long, frequencies / scaling.factor, blended))


def rope_tables(config: LlamaConfig, length: int) -> tuple[Expected, Expected]:
    """(cos, sin) of the angles of positions 0 … length − 1, each [length, head_dim / 2] float32."""
    angles = np.outer(np.arange(length), rope_frequencies(config))
    allowed = rope_tables_allowed(angles)
    return Expected(np.cos(angles), allowed, np.float32), Expected(np.sin(angles), allowed, np.float32)


def rope(q: Array, k: Array, cos: Array, sin: Array, positions: Array) -> tuple[Expected, Expected]:
    """(q, k) with each pair (i, i + D/2) turned by its token's row of the tables given.

    q [tokens, heads, D], k [tokens, kv_heads, D], cos and sin [length, D / 2] float32, positions [tokens].
    """
    c, s = (_float64(table)[positions][:, None] for table in (cos, sin))
    return _rotated(_float64(q), c, s), _rotated(_float64(k), c, s)


def _rotated(x: Values, cos: Values, sin: Values) -> Expected:
    with np.errstate(all="ignore"):
        first, second = np.split(x, 2, axis=-1)
        turned = np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
        cos, sin = np.abs(cos), np.abs(sin)
        first, second = np.abs(first), np.abs(second)
        terms = np.concatenate([first * cos + second * sin, second * cos + first * sin], axis=-1)
        return Expected(turned, bf16_allowed(turned, terms), BF16)


def softmax(x: Array) -> Expected:
    """Softmax of each row of x [rows, columns] float32; −infinity gets 0, also in a row that holds nothing else."""
    probabilities = _softmax(_float64(x))
    return Expected(probabilities, softmax_allowed(probabilities), np.float32)


def _softmax(scores: Values) -> Values:
    """Over the last axis; a row that is masked throughout, or empty, gives zeros."""
    with np.errstate(all="ignore"):
        largest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        exponentials = np.exp(scores - np.where(largest == -np.inf, 0.0, largest))
        total = np.sum(exponentials, axis=-1, keepdims=True)
        return np.asarray(exponentials / np.where(total == 0, 1.0, total))


def matmul(x: Array, weight: Array, dtype: DTypeLike = BF16) -> Expected:
    """x · weightᵀ, [rows, columns] of `dtype` (bf16 or float32); x [rows, depth], weight [columns, depth]."""
    with np.errstate(all="ignore"):
        a, b = _float64(x), _float64(weight)
        product, terms = a @ b.T, np.abs(a) @ np.abs(b).T
        allowed = bf16_allowed(product, terms) if np.dtype(dtype) == BF16 else float32_allowed(product, terms)
        return Expected(product, allowed, dtype)


def attention(q: Array, k: Array, v: Array, scale: float) -> Expected:
    """Causal attention of queries that are the last of the keys' tokens; query i of L sees keys 0 … S − L + i.

    q [L, heads, D], k and v [S, kv_heads, D]; query head h uses key and value head h // (heads / kv_heads). A query
    that sees no key gets zeros.
    """
    (queries, heads, head_dim), (keys, kv_heads, _) = q.shape, k.shape
    group = heads // kv_heads
    # [kv_heads, group, L, D] and [kv_heads, 1, ·, ·], so that a matrix product pairs each query head with its keys
    by_head = _float64(q).reshape(queries, kv_heads, group, head_dim).transpose(1, 2, 0, 3)
    by_key = _float64(k).transpose(1, 2, 0)[:, None]
    values = _float64(v).transpose(1, 0, 2)[:, None]
    visible = causal_mask(queries, keys)
    factor = float(np.float32(scale))
    with np.errstate(all="ignore"):
        scores = np.where(visible, factor * (by_head @ by_key), -np.inf)
        score_terms = np.where(visible, abs(factor) * (np.abs(by_head) @ np.abs(by_key)), 0.0)
        probabilities = _softmax(scores)
        out, value_terms = probabilities @ values, probabilities @ np.abs(values)
        largest_terms = np.max(score_terms, axis=-1, keepdims=True, initial=0.0)
        allowed = attention_allowed(out, value_terms, largest_terms)
    return Expected(_tokens_first(out), _tokens_first(allowed), BF16)


def attention_varlen(q: Array, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, scale: float) -> Expected:
    """`attention` of each of B packed sequences by itself: rows cu_seqlens_q[b] to cu_seqlens_q[b + 1] of q see rows
    cu_seqlens_k[b] to cu_seqlens_k[b + 1] of k and v.

    q [tokens, heads, D], k and v [keys, kv_heads, D]; cu_seqlens [B + 1], from 0 to tokens, respectively to keys.
    """
    values, allowed = np.zeros(q.shape), np.zeros(q.shape)
    for b in range(len(cu_seqlens_q) - 1):
        queries, keys = slice(*cu_seqlens_q[b : b + 2]), slice(*cu_seqlens_k[b : b + 2])
        alone = attention(q[queries], k[keys], v[keys], scale)
        values[queries], allowed[queries] = alone.values, alone.allowed
    return Expected(values, allowed, BF16)


def causal_mask(queries: int, keys: int) -> NDArray[np.bool_]:
    """Which keys each query sees, [queries, keys]: the last query sees all."""
    return np.arange(keys) <= np.arange(queries)[:, None] + (keys - queries)


def _tokens_first(x: Values) -> Values:
    """[kv_heads, group, tokens, D] as [tokens, heads, D]."""
    kv_heads, group, tokens, head_dim = x.shape
    return x.transpose(2, 0, 1, 3).reshape(tokens, kv_heads * group, head_dim)


def argmax(x: Array) -> Expected:
    """The index of each row's largest value, the lowest of equal ones; x [rows, columns] float32 without NaN."""
    return Expected(np.argmax(x, axis=-1).astype(np.int32), 0, np.int32)


def _float64(x: Array) -> Values:
    return np.asarray(x).astype(np.float64)
