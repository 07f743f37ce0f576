"""Stage 5: softmax of rows of any length."""

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import Out, Worker, check, expect, property_check
from grader.checking.draws import Array, floats
from grader.checks.support.parallelism import expect_parallel
from grader.checks.support.plug_in import expect_in_model
from grader.oracle.references import ReferenceModel


def expect_softmax(worker: Worker, x: Array) -> None:
    expect(worker.launch("softmax", Out(x.shape, np.float32), x), oracle.softmax(x))


@check("s05.1")
def row_lengths(worker: Worker, rng: Generator) -> None:
    """softmax is right for rows of every length, also past 1,024 columns, and for several rows."""
    shapes = [(3, n) for n in (1, 2, 31, 32, 33, 255, 256, 257, 1009, 1023, 1024, 1025)]
    for shape in (*shapes, (0, 5), (1, 1), (12, 17), (67, 40), (2, 4096)):
        expect_softmax(worker, floats(rng, *shape, scale=3))


@check("s05.2")
def large_entries(worker: Worker, rng: Generator) -> None:
    """softmax neither overflows nor vanishes: large, hugely negative and equal entries."""
    expect_softmax(worker, np.array([[2000, 1999, -2000], [-1e4, -1e4, -1e4], [7, 7, 7], [3e38, -3e38, 0]], np.float32))
    for center in (89, -89, 1e4, -1e4, -2e4, 1e10, -1e10, 1e30, -1e30):
        expect_softmax(worker, np.float32(center) + floats(rng, 3, 300, scale=3))
    expect_softmax(worker, floats(rng, 5, 300, scale=1e3))
    rising = np.sort(floats(rng, 2, 700, scale=30), axis=1)
    expect_softmax(worker, np.concatenate([rising, -rising]))


@check("s05.3")
def masked_entries(worker: Worker, rng: Generator) -> None:
    """softmax gives 0 to entries of −infinity, also where only one entry of a row is finite."""
    for columns in (4, 33, 300, 2000):
        x = floats(rng, 6, columns, scale=3)
        x[0, 1:] = x[1, :-1] = -np.inf  # one finite entry, the first or the last
        x[2, : 3 * columns // 4] = -np.inf  # whole threads and warps see no finite entry
        x[3, columns // 4 :] = -np.inf
        x[4, ::2] = -np.inf
        expect_softmax(worker, x)


@check("s05.4")
def vocabulary(worker: Worker, rng: Generator) -> None:
    """softmax is right for rows of 50,257 and 128,256 columns, the vocabularies of real models."""
    for columns in (50_257, 128_256):
        x = floats(rng, 2, columns, scale=2)
        x[1] += np.linspace(0, 20, columns, dtype=np.float32)
        expect_softmax(worker, x)


@check("s05.5")
@property_check(
    rows=st.integers(0, 6),
    columns=st.integers(1, 680),
    scale=st.sampled_from([1e-3, 1.0, 30.0, 1e4]),
    masked=st.sampled_from([0.0, 0.5, 0.99]),
)
def property_of_rows(worker: Worker, rng: Generator, rows: int, columns: int, scale: float, masked: float) -> None:
    """softmax is right at any shape, scale and mask."""
    x = floats(rng, rows, columns, scale=scale)
    x[:, 1:][rng.random((rows, columns - 1)) < masked] = -np.inf
    expect_softmax(worker, x)


@check("s05.6")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """softmax shares its work among threads that never race, and more rows get more of them."""
    columns = int(rng.integers(128, 160))
    few, many = ((Out((rows, columns), np.float32), floats(rng, rows, columns)) for rows in (2, 64))
    expect_parallel(emulator, worker, "softmax", few, many)


@check("s05.7")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your softmax makes the attention weights of all layers."""
    expect_in_model(tiny, softmax=lambda x: worker.launch("softmax", Out(x.shape, np.float32), x))
