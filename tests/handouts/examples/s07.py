"""The numbers of 07-attention.md."""

import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tests.handouts.formats import many, num

Q = np.asarray([[1.0, 0], [0, 1]])
KEYS = np.asarray([[1.0, 0], [0, 1], [1, 1]])
VALUES = np.asarray([[1.0, 2], [3, 4], [5, 6]])
SCALE = 1 / math.sqrt(2)


def attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, probabilities and output of one query over the keys that it sees."""
    scores = SCALE * (keys @ query)
    p = np.exp(scores - scores.max())
    p /= p.sum()
    return scores, p, p @ values


def short(values: np.ndarray) -> str:
    return ", ".join("0" if value == 0 else num(value, 4) for value in values)


def squares(rows: np.ndarray) -> list[str]:
    return [many(row, between=" ") for row in rows]


def two_queries() -> Iterator[str]:
    queries, keys = len(Q), len(KEYS)
    yield f"By hand, one head, D = 2, L = {queries}, S = {keys}, scale = 1/√2 = {SCALE:.5f}:"
    q, k, v = squares(Q), squares(KEYS), squares(VALUES)
    yield f"``` q = {q[0]} k = {k[0]} v = {v[0]} {q[1]} {k[1]} {v[1]} {k[2]} {v[2]} ```"
    yield "| query | keys seen | scores | p | out |"
    seen = keys - queries + 0 + 1
    scores, p, out = attend(Q[0], KEYS[:seen], VALUES[:seen])
    yield f"""| 0 | 0, 1 (S − L + 0 = {seen - 1}) | {short(scores)} | {short(p)} |
        {p[0]:.4f}·{VALUES[0, 0]:g} + {p[1]:.4f}·{VALUES[1, 0]:g} = {out[0]:.4f}, and {out[1]:.4f} |"""
    scores, p, out = attend(Q[1], KEYS, VALUES)
    yield f"| 1 | {many(range(keys))} | {short(scores)} | {short(p)} | {short(out)} |"


def heads() -> Iterator[str]:
    yield f"four times for Llama 3, with {32} query heads over 8"
    heads, kv_heads = 6, 2
    group = heads // kv_heads
    right, remainder = (
        [function(h) for h in range(heads)] for function in (lambda h: h // group, lambda h: h % kv_heads)
    )
    wrong = [h for h in range(heads) if right[h] != remainder[h]]
    agreeing = [h for h in range(32) if h // 4 == h % 8]
    divided = [h for h in range(32) if h // 4 == h // 8]
    yield f"""
        The figure in words: Hq = {heads}, Hkv = {kv_heads}, group {group}. Query heads 0, 1, 2 use key/value head
        {right[0]} and 3, 4, 5 use head {right[3]}. The remainder h % {kv_heads} gives {many(remainder, between=" ")}:
        wrong for heads {many(wrong, between=" and ")}, right for the others only because the numbers are small. For 32
        heads over 8 the remainder is right for heads {many(agreeing[:3])} and {agreeing[3]} alone.
    """
    yield f"""32/8: the remainder is right for heads {many(agreeing)}; h / 8 only for {divided[0]} to {divided[-1]};
        right is h / {32 // 8}"""
    yield "![Six query heads over two key/value heads: heads 0, 1, 2 read head 0 and heads 3, 4, 5 head 1]"
    yield "`scale` is a number that the caller passes (1 / √D in Llama)."
    yield "the first `group` query heads share head 0, the next `group` share head 1, and so on."


def mask() -> Iterator[str]:
    queries, keys = 3, 8
    last = [keys - queries + i for i in range(queries)]
    yield f"""
        The second figure in words: L = {queries}, S = {keys}. Query 0 sees keys 0–{last[0]}, query 1 keys 0–{last[1]},
        query 2 keys 0–{last[2]}. Aligned at the top left, query 0 would see key 0 only
    """
    yield f"""![Three queries over eight keys: query 0 sees keys 0 to {last[0]}, query 1 keys 0 to {last[1]},
        query 2 all;"""
    yield f"L = 1, S = 5: the one query must see {5 - 1 + 0 + 1} keys"
    none = [i for i in range(5) if 2 - 5 + i < 0]
    yield f"L = 5, S = 2: queries {many(none)} see nothing; write zeros"
    yield "L = S = 1: the query sees itself"


def places() -> Iterator[str]:
    kv_heads, size = 2, 8
    yield f"Hkv = {kv_heads}, D = {size}: key 1 of head 0 begins at element {(1 * kv_heads + 0) * size}"
    yield "D = 24 needs a loop or a check `d < D`"
    yield "thread d = 0 reads the exponential of the last key"
    assert math.exp(-1000) == 0
    yield "a masked key with score 1,000 makes all seen ones exp(−1000) = 0"
    stored = float(ml_dtypes.bfloat16(20.06))
    yield f"score 20.06 becomes {stored:.1f}: exp({20.06 - stored:.2f}) = {math.exp(20.06 - stored):.2f}"
    yield '`RUNTIME_ERROR` at S = 0, launch.toml "wanted 1 to 1024" | block or grid of 0 | `max(1, …)`'
    yield f"up to 99 KB on the emulated one ({num(99 * 1024 / 4)} floats)"


EXAMPLES = (two_queries, heads, mask, places)
