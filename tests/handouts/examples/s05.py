"""The numbers of 05-softmax.md."""

import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tests.handouts.formats import many, num

VOCABULARY = 128_256


def overflow() -> Iterator[str]:
    largest = float(np.finfo(np.float32).max)
    assert math.exp(89) > largest
    assert np.exp(np.float32(-104)) == 0
    assert np.exp(np.float32(-103)) > 0
    yield f"float32 ends at {largest:.1e}, and exp(89) is more than that.".replace("e+", "e")
    yield "out[n] = exp(x[n]) / (exp(x[0]) + exp(x[1]) + … + exp(x[N−1]))"
    yield "Terms far below the maximum become 0, rightly: exp(−104) is 0 in float32."
    yield 'An entry of −∞ means "masked": exp(−∞ − m) = exp(−∞) = 0 for any finite m.'


def three_numbers() -> Iterator[str]:
    row = np.asarray([2000.0, 1999, -2000])
    exponents = row - row.max()
    terms = np.exp(exponents)
    plain = [f"{value:.0f}" for value in row]
    yield f"""
        By hand: the row [{plain[0]}, {plain[1]}, −{plain[2][1:]}]. Without subtraction ∞ / ∞ = NaN. With m =
        {row.max():.0f}: exponents {num(exponents[0])}, {num(exponents[1])}, −{-exponents[2]:.0f}; exponentials
        {terms[0]:g}, {terms[1]:.5f}, {terms[2]:g}; sum {terms.sum():.5f}; result {terms[0] / terms.sum():.5f},
        {terms[1] / terms.sum():.5f}, {terms[2] / terms.sum():g}.
    """


def three_sweeps() -> Iterator[str]:
    row, block = np.asarray([2, -1, 0, 3, 1, -np.inf]), 4
    columns = [list(range(thread, len(row), block)) for thread in range(block)]
    maxima = [row[own].max() for own in columns]
    terms = np.exp(row - row.max())
    pairs = [" + ".join(short(terms[column]) for column in own) for own in columns]
    yield f"""
        The figure in words: the row {many(row[:5])}, −∞ and a block of {block} threads. Thread 0 takes columns
        {columns[0][0]} and {columns[0][1]}, thread 1 columns {columns[1][0]} and {columns[1][1]}, thread 2 column
        {columns[2][0]}, thread 3 column {columns[3][0]}. Sweep 1: each thread finds the maximum of its own columns
        ({many(maxima)}), the block reduces these to m = {num(max(maxima))}. Sweep 2: each thread adds its exponentials
        exp(x − {num(max(maxima))}): {", ".join(pairs)}; the block adds these up to {terms.sum():.4f}. Sweep 3: each
        thread writes its quotients: {", ".join(short(term / terms.sum()) for term in terms)}.
    """
    yield f"""![A row of six in three sweeps: maximum {num(max(maxima))}, sum of exponentials {terms.sum():.4f},
        quotients]"""


def short(value: float) -> str:
    """Four digits behind the point, none for whole numbers."""
    return f"{value:g}" if value in (0, 1) else f"{value:.4f}"


def vocabulary() -> Iterator[str]:
    shared = 48 * 1024
    assert 4 * VOCABULARY // shared == 10
    yield f"""A row of {num(VOCABULARY)} float32 is {num(4 * VOCABULARY)} bytes, ten times what a block gets as
        shared memory."""
    yield f"over the whole vocabulary ({num(VOCABULARY)} numbers in Llama 3)"
    yield "sweep 3 may compute the exponentials again or read back what sweep 2 stored in `out`."
    yield """A thread without any column (N = 1, thread 1) must hand in a value that changes nothing: −∞ for a
        maximum, 0 for"""
    yield f"`ALL_LANES` | 0x{(1 << 32) - 1:x}, the mask of a shuffle"
    yield "the sum of the 32 lanes' values"
    yield "the largest of the 32 lanes' values"
    yield "in each warp with `fmaxf` in place of `+`, one value per warp in shared memory"
    yield "thread i takes the columns i, i + block, i + 2·block, …"


def mistakes() -> Iterator[str]:
    assert math.exp(-10_000) == 0
    yield "exp(89) is ∞ in float32; [2000, 1999, −2000]"
    yield "m = 0: exp(−10,000) = 0 everywhere, 0 / 0"
    yield f"N = 1,025: column {num(1025 - 1)} has no thread"
    yield f"N = 33, block 32: column 32 belongs to thread {32 % 32}"
    total = ml_dtypes.bfloat16(0)
    for _ in range(600):
        total = ml_dtypes.bfloat16(float(total) + 1)
    yield f"600 equal terms in bf16 add up to {float(total):g}"
    yield "N = 5: lanes 5 to 31"
    yield "block = N = 5: lanes 5 to 31 do not exist"


EXAMPLES = (overflow, three_numbers, three_sweeps, vocabulary, mistakes)
