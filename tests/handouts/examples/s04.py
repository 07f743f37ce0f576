"""The numbers of 04-rope.md."""

import math
from collections.abc import Iterator

import numpy as np

from tests.handouts.formats import many, num

THETA, ORIGINAL, FACTOR, LOW, HIGH, PAIRS = 500_000, 8192, 32, 1, 4, 32
"""Llama 3.2 1B, whose heads have 64 elements."""
FREQUENCIES = THETA ** (-np.arange(PAIRS) / PAIRS)
TURNS = ORIGINAL * FREQUENCIES / (2 * math.pi)
BLEND = np.clip((TURNS - LOW) / (HIGH - LOW), 0, 1)
RATIOS = (1 - BLEND) / FACTOR + BLEND
SCALED = RATIOS * FREQUENCIES


def rotation() -> Iterator[str]:
    theta, head, half = 10_000, np.asarray([1.0, 2, 3, 4]), 2
    f = theta ** (-2 * np.arange(half) / len(head))
    yield f"""By hand: D = {len(head)}, θ = {num(theta)}, head [{many(head)}], position 1. The pairs are (1, 3) and
        (2, 4), f = [{f[0]:g}, {f[1]:g}]:"""
    yield "| pair | angle | cos | sin | first' | second' |"
    result = np.empty(4)
    for i, (digits, fine) in enumerate(((4, 4), (5, 7))):
        first, second = head[i], head[i + half]
        cos, sin = math.cos(f[i]), math.sin(f[i])
        result[i], result[i + half] = first * cos - second * sin, second * cos + first * sin
        c, s = f"{cos:.{digits}f}", f"{sin:.{fine}f}"
        yield f"""| ({first:g}, {second:g}) | {f[i]:g} | {c} | {s} |
            {first:g} · {c} − {second:g} · {s} = {num(result[i], 4)} |
            {second:g} · {c} + {first:g} · {s} = {num(result[i + half], 4)} |"""
    yield f"The result is [{many(result, 4)}]. At position 0 every angle is 0 and nothing changes, so position 0 alone"
    wrong = head[2] * math.cos(1) + result[0] * math.sin(1)
    yield f"""[1, 3] above: 3 · {math.cos(1):.4f} + ({num(result[0], 4)}) · {math.sin(1):.4f} = {num(wrong, 4)}"""


def bands() -> Iterator[str]:
    stay, divided = np.flatnonzero(BLEND == 1), np.flatnonzero(BLEND == 0)
    between = np.flatnonzero((BLEND > 0) & (BLEND < 1))
    i = 16
    f, s = FREQUENCIES[i], BLEND[i]
    yield f"""
        At the borders the bands agree: s = 1 gives f, s = 0 gives f / factor. With Llama 3.2 1B's values (D =
        {2 * PAIRS}, θ = {num(THETA)}, factor {FACTOR}, low {LOW}, high {HIGH}, original {num(ORIGINAL)}) pairs
        {stay[0]}–{stay[-1]} stay, {between[0]}–{between[-1]} are blended, {divided[0]}–{divided[-1]} are divided by
        {FACTOR}. Pair {i} by hand: f = {num(THETA)}^(−1/2) = {f:.8f}, wavelength {2 * math.pi / f:,.1f}, turns
        {TURNS[i]:.4f}, s = {TURNS[i] - LOW:.4f} / {HIGH - LOW} = {s:.5f}, so the new frequency is {1 - s:.5f} · f /
        {FACTOR} + {s:.5f} · f = {RATIOS[i]:.5f} · f = {SCALED[i]:.8f}.
    """
    yield f"""
        The second figure in words: the ratio of scaled to unscaled frequency is 1 for pairs {stay[0]} to {stay[-1]}
        (wavelength below {num(ORIGINAL)} / {HIGH} = {num(ORIGINAL / HIGH)}), then {many(RATIOS[between], 3)} for pairs
        {many(between)}, and 1/{FACTOR} = {1 / FACTOR:.3f} from pair {divided[0]} on (wavelength above {num(ORIGINAL)} /
        {LOW}).
    """
    yield f"""![Scaled over unscaled frequency of {PAIRS} pairs: 1 up to pair {stay[-1]}, falling over {between[0]} to
        {between[-1]}, 1/{FACTOR} from {divided[0]} on]"""
    yield f"Llama 3 was first trained on {num(ORIGINAL)} positions"
    yield "For a pair of frequency f the *wavelength* 2π / f is the number of positions for a full turn"


def base() -> Iterator[str]:
    yield "θ is the config's `rope_theta` (500,000 in Llama 3). Pair 0 turns by 1 radian per position"
    yield "second' = second · cos(p · f[i]) + first · sin(p · f[i]) f[i] = θ^(−2i / D), i = 0 … D/2 − 1"
    yield "A *head* is a vector of D numbers (D = 64 in Llama 3.2 1B). RoPE splits it into D/2 pairs"
    yield "pair i is elements **i and i + D/2**, called half-split. Other code bases pair neighbours, 2i and 2i + 1."


def places() -> Iterator[str]:
    half = 4
    pairs = [(i, i + half) for i in range(half)]
    neighbours = [(2 * i, 2 * i + 1) for i in range(half)]
    yield f"""
        The figure in words: for D = {2 * half} the pairs are {", ".join(map(str, pairs[:3]))} and {pairs[3]}, not
        {", ".join(map(str, neighbours[:3]))} and {neighbours[3]}.
    """
    yield f"![Pairs of a head of eight: half-split {', '.join(map(str, pairs))}, and the wrong, adjacent ones]"
    yield "q and k have different numbers of heads (Hq = 32 and Hkv = 8, for example)"
    yield f"""for D = {2 * half}, thread {half} needs element {half - half} for its own `vector[{half}] = …`, and
        thread 0"""
    yield "number them 0, 1, 2, …; pair number n"
    yield "The tables `cos` and `sin` are [length, D/2] float32: row p for position p"
    yield "The work of one token is (Hq + Hkv) · D/2 rotations"
    yield "belongs to head n // (D/2) and is pair n % (D/2) there"


def errors(scaled: np.ndarray, unscaled: np.ndarray, position: int) -> float:
    """The largest error of a sine at a position when the scaling is left out."""
    return float(np.abs(np.sin(position * scaled) - np.sin(position * unscaled)).max())


def mistakes() -> Iterator[str]:
    f = THETA ** (-np.arange(32) / 32)
    yield f"""D = 64, a 1 in element 1, position 1: {math.cos(f[1]):.4f} must stay in element 1 and {math.sin(f[1]):.4f}
        appear in element {1 + 32}, not in 0"""
    at = {position: errors(SCALED, FREQUENCIES, position) for position in (1, 16, 256, 1024)}
    yield f"""Llama 3.2 1B without scaling: largest error of a sine {at[1]:.3f} at position 1, {at[16]:.3f} at 16,
        {at[256]:.2f} at 256, {at[1024]:.2f} at 1,024"""
    other = 10_000 ** (-np.arange(32) / 32)
    yield f"Sines off by {errors(f, other, 1):.2f} at position 1 already | base 10,000 in place of the config's 500,000"
    yield f"f[1] = {f[1]:.4f} for 500,000 and D = 64"
    yield "bf16 has no 257: it becomes 256"
    yield "positions [5, 4, 3]: token 0 uses row 5"
    heads, kv_heads, size = 4, 2, 64
    yield f"""T = 2, Hq = {heads}, Hkv = {kv_heads}, D = {size}: token 1 of k begins at {kv_heads * size}, not at
        {heads * size}"""
    yield "row p begins at p · D/2"
    yield f"position 1 turns (1, 0) into ({math.cos(1):.4f}, +{math.sin(1):.4f})"
    spanned = 32 / (24 // 2)
    assert spanned == 2 + 2 / 3
    yield f"{24 // 2} pairs a head: 32 threads span 2⅔ heads"


EXAMPLES = (rotation, bands, base, places, mistakes)
