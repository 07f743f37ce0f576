"""Judges how bf16 values were rounded: no single value shows it, the mean of many does.

A value may be off by a step or two of bf16, so a store that cuts the low bits off passes value by value. On average
rounding to the nearest is off by 0 steps, cutting off by half a step towards 0. A mean of 1,000 values varies by 0.01.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from grader.failure import Failure
from grader.judge.compare import Expected, ulp_bf16

FEWEST = 1000
"""Values that a mean is taken of, at least."""
LARGE_PART = 0.4
LARGEST_BIAS = 0.1
"""Steps of bf16 that the mean may be off by; ten times what it varies by when two roundings are made."""


def expect_unbiased(got: NDArray[Any], expected: Expected, name: str = "out") -> None:
    """Raise Failure unless the values of `got`, each near enough to what is wanted, are so on average too.

    `expected` must be drawn from many different values: equal ones are all rounded alike.
    """
    want = np.asarray(expected.values, np.float64)
    used = np.isfinite(want) & (want != 0)
    if used.sum() < FEWEST:
        raise ValueError(f"{used.sum()} values show no bias; {FEWEST} at least do")
    error = ((got.astype(np.float64) - want) / ulp_bf16(want))[used]
    for bias, low, high in (
        (np.mean(error * np.sign(want[used])), "nearer to 0", "farther from 0"),
        (np.mean(error), "lower", "higher"),
    ):
        if not abs(bias) <= LARGEST_BIAS:
            where = low if bias < 0 else high
            message = f"The values of {name} lie {abs(bias):.2g} steps of bf16 {where} than they must, on average"
            raise Failure("INCORRECT_VALUE", message + _reason(got[used], want[used]), {"bias": float(bias)})


def _reason(got: NDArray[Any], want: NDArray[np.float64]) -> str:
    """Whether a large part of the values is what cutting off the low bits gives where rounding gives another."""
    nearest = want.astype(got.dtype)
    cut = ((want.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)).view(got.dtype)
    if np.mean((got == cut)[cut != nearest]) >= LARGE_PART:
        return ": low bits were cut off. Store with __float2bfloat16, which rounds to the nearest."
    return ", though none is far off: look for a sum that is kept in bf16, or for a value that is rounded early."
