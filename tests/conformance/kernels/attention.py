"""Cases of attention.cu."""

import ml_dtypes
import numpy as np

from tests.conformance.table import Launch, Table, blank

table = Table("attention.cu")
BF16 = ml_dtypes.bfloat16


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """[…, queries, dim] in float64."""
    scores = np.exp(scale * (q @ k.swapaxes(-1, -2)))
    return scores / scores.sum(-1, keepdims=True) @ v


@table.case(grid=(2, 3), block=16, shared=(3 * 16 * 32 + 16 * 16) * 4, ulps=64)
def flash_forward(rng: np.random.Generator) -> Launch:
    q, k, v = (rng.normal(size=(2, 3, 48, 32)).astype(np.float32) for _ in range(3))
    out = attention(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64), 32**-0.5)
    sums, maxima = np.zeros((2, 3, 48), np.float32), np.full((2, 3, 48), -np.inf, np.float32)
    scores = 32**-0.5 * (q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2))
    largest = scores.max(-1)
    total = np.exp(scores - largest[..., None]).sum(-1)
    sizes = [np.int32(n) for n in (48, 32, 3, 3, 16, 16)]
    arguments = [np.zeros_like(q), q, k, v, sums, maxima, *sizes, np.float32(32**-0.5)]
    expected = [out.astype(np.float32), q, k, v, total.astype(np.float32), largest.astype(np.float32)]
    return Launch(arguments, expected)


@table.case(grid=(4, 3), block=128, shared=64 * 4, ulps=2)
def paged_attention(rng: np.random.Generator) -> Launch:
    """Blocks of 16 tokens; two heads share a head of keys and values; slots behind a context hold NaN."""
    lengths = np.array([1, 37, 64], np.int32)
    tables = rng.permutation(12).astype(np.int32).reshape(3, 4)
    q = rng.normal(size=(3, 4, 64)).astype(BF16)
    k_cache = np.full((12, 2, 8, 16, 8), np.nan, BF16)
    v_cache = np.full((12, 2, 64, 16), np.nan, BF16)
    out = np.empty((3, 4, 64))
    for sequence, length in enumerate(lengths):
        k, v = (rng.normal(size=(length, 2, 64)).astype(BF16) for _ in range(2))
        for token in range(length):
            block, slot = tables[sequence, token // 16], token % 16
            k_cache[block, :, :, slot] = k[token].reshape(2, 8, 8)
            v_cache[block, :, :, slot] = v[token]
        keys, values = (np.repeat(x.astype(np.float64), 2, 1).swapaxes(0, 1) for x in (k, v))
        out[sequence] = attention(q[sequence, :, None].astype(np.float64), keys, values, 64**-0.5)[:, 0]
    sizes = [np.int32(2), np.float32(64**-0.5), tables, lengths, np.int32(4)]
    return Launch([blank(out.shape, BF16), q, k_cache, v_cache, *sizes], [out.astype(BF16)])
