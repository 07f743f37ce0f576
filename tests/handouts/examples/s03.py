"""The numbers of 03-rmsnorm.md."""

import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tests.handouts.formats import many, num

EPS = 1e-5
WEIGHT = np.asarray([1, 0.5, 2])
SHARED = [3, 1, 7, 0, 4, 1, 6, 3]


def two_rows() -> Iterator[str]:
    loud = np.asarray([1.0, 2.0, 2.0])
    mean = float(np.mean(loud**2))
    factor = 1 / math.sqrt(mean + EPS)
    yield f"By hand, H = {len(loud)}, two rows, w = [{', '.join(f'{w:g}' for w in WEIGHT)}], ε = {EPS:.0e}:".replace(
        "-05", "-5"
    )
    yield "| row | mean square | 1 / √(mean square + ε) | out |"
    yield f"""| {many(loud)} | {num(sum(loud**2))} / {len(loud)} = {num(mean)} | {factor:.5f} |
        {many(loud * factor * WEIGHT, 3)} |"""
    quiet = loud / 1000
    small = float(np.mean(quiet**2))
    factor = 1 / math.sqrt(small + EPS)
    yield f"""| {many(quiet, 3)} | {small:.6f} | 1 / √{small + EPS:.6f} = {factor:.2f} |
        {many(quiet * factor * WEIGHT, 3)} |"""
    assert factor * quiet[0] < 0.5 * loud[0] / math.sqrt(mean)
    yield f"The second row is the first divided by {num(loud[0] / quiet[0])}."


def shares() -> Iterator[str]:
    width, block = 1000, 128
    first, last = (list(range(thread, width, block)) for thread in (0, block - 1))
    words = {7: "seven", 8: "eight"}
    yield f"""
        in which thread i takes the elements i, i + block, i + 2·block and so on, where block is `blockDim.x`. With H =
        {num(width)} and {block} threads, thread 0 takes {many(first[:3])}, … {first[-1]} ({words[len(first)]} elements)
        and thread {block - 1} takes {many(last[:2])}, … {last[-1]} ({words[len(last)]}).
    """


def levels() -> list[list[int]]:
    """What shared memory holds where it still counts, before the first level and after each."""
    found = [SHARED]
    while len(found[-1]) > 1:
        half = len(found[-1]) // 2
        found.append([found[-1][i] + found[-1][i + half] for i in range(half)])
    return found


def tree() -> Iterator[str]:
    start, one, two, three = (" ".join(map(str, level)) for level in levels())
    early = SHARED[2]
    yield f"""
        The figure in words: shared memory holds {start}. At distance 4 threads 0 to 3 each add the slot 4 places on:
        {one}. At distance 2 threads 0 and 1 add: {two}. At distance 1 thread 0 adds: {three}. A barrier stands before
        each level, and one after the last, since all threads then read slot 0. Without the second barrier thread 0, in
        `partial[0] += partial[2]`, may read slot 2 before thread 2 has done `partial[2] += partial[6]`:
        {levels()[1][0]} + {early} in place of {levels()[1][0]} + {SHARED[2] + SHARED[6]}. With 256 threads there are
        {int(math.log2(256))} levels. Halving needs a block size that is a power of two; with 6 threads, distance 3 and
        then 1 would lose slot 2.
    """


def shuffle() -> Iterator[str]:
    lanes, states = np.asarray(SHARED), []
    for distance in (4, 2, 1):
        lanes = lanes + lanes[np.arange(8) ^ distance]
        states.append(" ".join(map(str, lanes)))
    assert set(lanes) == {sum(SHARED)}
    steps = [32 >> step for step in range(1, 6)]
    assert steps[-1] == 1
    yield f"""
        The figure in words, for {len(SHARED)} lanes: {" ".join(map(str, SHARED))} becomes {states[0]}, then
        {states[1]}, then {lanes[0]} in every lane. Each lane adds what its partner holds, so in contrast to the tree no
        lane drops out and all know the result. A warp of 32 takes five steps: {many(steps)}.
    """
    yield f"A block of 128 threads has {128 // 32} warps, so after the shuffles there are {128 // 32} sums."


def rounded_sum() -> Iterator[str]:
    total = ml_dtypes.bfloat16(0)
    for _ in range(600):
        total = ml_dtypes.bfloat16(float(total) + 1)
    yield f"""adding 600 ones in bf16 gives {float(total):g}, since 256 + 1 rounds back to
        {float(ml_dtypes.bfloat16(257)):g}."""


def norms() -> Iterator[str]:
    layers = 16
    yield f"A Llama model normalises twice per layer and once more at the end: {2 * layers + 1} times for every token"


def mistakes() -> Iterator[str]:
    rms = 0.001
    right, outside, smaller = 1 / math.sqrt(rms**2 + EPS), 1 / (rms + EPS), 1 / math.sqrt(rms**2 + 1e-6)
    yield f"""row of RMS {rms}: right factor {right:.1f}; ε outside {outside:.0f} ({outside / right:.2f} times as much);
        1e-6 {smaller:.0f} ({smaller / right:.2f} times). At RMS 1 neither shows"""
    yield f"H = 100 without the mean: off by √100 = {math.sqrt(100):g}"
    full = 180 // 32
    yield f"""block 180: {full} full warps are {full * 32} threads; √(180 / {full * 32}) =
        {math.sqrt(180 / (full * 32)):.4f}."""
    yield f"H = 33, block 32: element {33 // 32 * 32} is skipped"
    distances = [48]
    while distances[-1] > 1:
        distances.append(distances[-1] // 2)
    assert 3 // 2 * 2 == 2  # of three slots, 0 to 2, the last level adds two
    yield f"distances {many(distances)}: at 3 → 1 slot 2 is lost"
    yield "half = 4: threads 4 to 7 go on and wait at another barrier"
    yield f"H = 33, block 128: slots 33 to {128 - 1}"
    yield f"256 floats are {num(256 * 4)} bytes"
    yield "let thread 0 add slot 2 before thread 2 has added slot 6"
    yield "1 / √0 is infinite, 0 · ∞ is NaN"


EXAMPLES = (two_rows, shares, tree, shuffle, rounded_sum, norms, mistakes)
