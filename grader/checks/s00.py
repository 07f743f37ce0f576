"""Stage 0: a first kernel, and its whole launch in Python."""

from functools import partial

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import Out, Worker, check, expect, expect_error, property_check
from grader.checking.draws import floats

SIZES = (1, 2, 255, 256, 257, 511, 1009)
EXTREMES = (0.0, -0.0, 1e-45, -1e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 16777216.0, 1.0)


@check("s00.1")
def kernel_at_block_borders(worker: Worker, rng: Generator) -> None:
    """The kernel adds vectors of every length, also where the last block has threads to spare."""
    for n in SIZES:
        x, y = floats(rng, n), floats(rng, n)
        expect(worker.launch("vector_add", Out(n, np.float32), x, y), oracle.vector_add(x, y))


@check("s00.2")
def launch_at_block_borders(worker: Worker, rng: Generator) -> None:
    """vector_add in Python returns the sums of vectors of every length, none at all included."""
    for n in (*SIZES, 0):
        x, y = floats(rng, n), floats(rng, n)
        expect(worker.call("vector_add.vector_add", x, y, checked=True), oracle.vector_add(x, y))


@check("s00.3")
@property_check(n=st.integers(0, 1500), extreme=st.booleans(), examples=40)
def kernel_property(worker: Worker, rng: Generator, n: int, extreme: bool) -> None:
    """The kernel adds to the last bit at any length, infinities and the smallest numbers too; NaN stays NaN."""
    x, y = floats(rng, n), floats(rng, n)
    if extreme:
        x, y = (rng.choice(np.asarray(EXTREMES, np.float32), n) for _ in range(2))
    expect(worker.launch("vector_add", Out(n, np.float32), x, y), oracle.vector_add(x, y))


@check("s00.4")
def launch_again_and_again(worker: Worker, rng: Generator) -> None:
    """vector_add in Python is right at a million elements and in later calls, and refuses unequal lengths."""
    for n in (1_000_000, 3, 1_000_003, 3, 257):
        x, y = floats(rng, n), floats(rng, n)
        expect(worker.call("vector_add.vector_add", x, y), oracle.vector_add(x, y))
    expect_error(partial(worker.call, "vector_add.vector_add", x, y[:-1]), "ValueError")
