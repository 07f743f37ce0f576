"""The numbers of 08-forward-pass.md."""

import math
from collections.abc import Iterator

import numpy as np
from given.config import LlamaConfig

from grader.oracle.operations import rope_frequencies
from grader.oracle.references import TINY
from tests.handouts.formats import num

CONFIG = LlamaConfig.from_folder(str(TINY / "model"))


def shapes() -> Iterator[str]:
    c = CONFIG
    hidden, queries, keys, inner = c.hidden_size, c.num_heads, c.num_kv_heads, c.intermediate_size
    yield f"""
        The figure in words, with the stage of each operation and the shapes of the shipped model `tiny` (H = {hidden},
        Hq = {queries}, Hkv = {keys}, D = {c.head_dim}, I = {inner}, V = {num(c.vocab_size)}, {c.num_layers} layers):
    """
    wide, narrow = queries * c.head_dim, keys * c.head_dim
    yield f"| embedding | `ops.embedding` (s02) | hidden [T, H] | [T, {hidden}] |"
    yield f"| input norm | `ops.rmsnorm` (s03) | normed [T, H] | [T, {hidden}] |"
    yield f"| [T, Hq·D], [T, Hkv·D] twice | [T, {wide}], [T, {narrow}] twice |"
    yield f"| [T, {queries}, {c.head_dim}], [T, {keys}, {c.head_dim}] |"
    yield f"| attention | `ops.attention` (s07) | [T, Hq, D] | [T, {queries}, {c.head_dim}] |"
    for name in ("o_proj | `linear` | [T, H]", "add | `ops.residual_add` (s02) | hidden in place"):
        yield f"| {name} | [T, {hidden}] |"
    yield f"| second norm | `ops.rmsnorm` | normed [T, H] | [T, {hidden}] |"
    yield f"| gate, up | `linear`, twice | [T, I] each | [T, {inner}] |"
    yield f"| join | `ops.silu_mul` (s02) | [T, I] | [T, {inner}] |"
    yield f"| down_proj | `linear` | [T, H] | [T, {hidden}] |"
    yield f"| add | `ops.residual_add` | hidden in place | [T, {hidden}] |"
    yield f"| final norm | `ops.rmsnorm` | normed [T, H] | [T, {hidden}] |"
    yield f"| head | `linear`, into float32 | logits [T, V] | [T, {c.vocab_size}] |"


def argmax() -> Iterator[str]:
    row = [1, 5, 2, 5]
    yield f"By hand, {row} gives {np.argmax(row)}, and a row of −∞ only gives {np.argmax([-math.inf, -math.inf])}."
    yield "Row t of the logits scores every token of the vocabulary as the one that follows tokens 0 … t."
    yield "scale = 1 / √D"
    yield "rope(q, k, positions 0 … T−1)"


def mistakes() -> Iterator[str]:
    scaled = rope_frequencies(CONFIG)
    unscaled = CONFIG.rope_theta ** (-np.arange(CONFIG.head_dim // 2) * 2 / CONFIG.head_dim)
    worst = {p: float(np.abs(np.sin(p * scaled) - np.sin(p * unscaled)).max()) for p in (1, 8, 32)}
    yield f"""with `tiny` the largest error of a sine is then {worst[1]:.2f} at position 1, {worst[8]:.2f} at 8 and
        {worst[32]:.1f} at 32"""


EXAMPLES = (shapes, argmax, mistakes)
