"""Stage 6: the matrix product, naive and tiled, then the linear layer through cuBLAS."""

from functools import partial

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator
from numpy.typing import DTypeLike

from grader import oracle
from grader.checking.api import BF16, OnDevice, Out, Worker, check, expect, expect_error, property_check, require
from grader.checking.draws import Array, bf16, to_bf16
from grader.checks.support.launches import expect_counted, expect_launch, expect_rounded
from grader.checks.support.parallelism import expect_parallel
from grader.checks.support.plug_in import expect_in_model
from grader.observe.traffic import busiest
from grader.oracle.references import ReferenceModel

SHAPES = (
    *((16, 16, 32), (15, 17, 32), (17, 15, 33), (16, 16, 31), (1, 31, 64), (1, 1, 1), (0, 3, 4), (3, 0, 4), (2, 3, 0)),
    *((31, 33, 31), (33, 32, 65), (37, 41, 43), (5, 288, 288), (3, 768, 288), (64, 8, 7)),
)
"""[M, N, K], around tiles of 16 and 32."""


def expect_product(worker: Worker, kernel: str, x: Array, w: Array) -> None:
    got = worker.launch(kernel, Out((len(x), len(w))), x, w)
    expect(got, oracle.matmul(x, w))


def expect_linear(worker: Worker, x: Array, weight: Array, dtype: DTypeLike = BF16) -> None:
    got = worker.call("linear.linear", Out((len(x), len(weight)), dtype), OnDevice(x), OnDevice(weight))
    expect(got, oracle.matmul(x, weight, dtype))


@check("s06.1")
def naive_shapes(worker: Worker, rng: Generator) -> None:
    """matmul_naive is right at every shape: not square, not multiples of a block; K = 0 gives zeros."""
    for m, n, k in SHAPES:
        expect_product(worker, "matmul_naive", bf16(rng, m, k), bf16(rng, n, k))


@check("s06.2")
def tiled_shapes(worker: Worker, rng: Generator) -> None:
    """matmul_tiled is right at every shape: not square, not multiples of a tile; K = 0 gives zeros."""
    for m, n, k in SHAPES:
        expect_product(worker, "matmul_tiled", bf16(rng, m, k), bf16(rng, n, k))


@check("s06.3")
def linear_shapes(worker: Worker, rng: Generator) -> None:
    """linear multiplies by the transpose of the weight at every shape that is not square."""
    for m, n, k in SHAPES:
        if m and n and k:
            expect_linear(worker, bf16(rng, m, k), bf16(rng, n, k))


@check("s06.4")
def model_shapes(worker: Worker, rng: Generator) -> None:
    """Both kernels are right at the sizes of a model: [5, 2048] times [512, 2048], [1, 2048] times [1000, 2048]."""
    for m, n, k in ((5, 512, 2048), (1, 1000, 2048)):
        x, w = bf16(rng, m, k), bf16(rng, n, k)
        expect_product(worker, "matmul_naive", x, w)
        expect_product(worker, "matmul_tiled", x, w)


@check("s06.5")
@property_check(m=st.integers(0, 40), n=st.integers(1, 40), k=st.integers(0, 50))
def property_of_both(worker: Worker, rng: Generator, m: int, n: int, k: int) -> None:
    """Both kernels are right at any shape."""
    x, w = bf16(rng, m, k), bf16(rng, n, k)
    expect_product(worker, "matmul_naive", x, w)
    expect_product(worker, "matmul_tiled", x, w)


@check("s06.6")
def long_sums(worker: Worker, rng: Generator) -> None:
    """Both kernels sum in float32: many equal terms, terms that cancel, huge and tiny numbers."""
    ones = to_bf16(np.ones((3, 1500)))
    large = bf16(rng, 3, 1500, scale=100)
    cancelling = np.concatenate([large, -large, bf16(rng, 3, 5)], axis=1)
    equal = np.concatenate([ones, ones, ones[:, :5]], axis=1)
    for kernel in ("matmul_naive", "matmul_tiled"):
        expect_product(worker, kernel, ones, ones)
        expect_product(worker, kernel, cancelling, equal)
        expect_rounded(worker, kernel, Out((33, 40)), bf16(rng, 33, 70), bf16(rng, 40, 70))
        expect_product(worker, kernel, bf16(rng, 3, 300, scale=1e17), bf16(rng, 5, 300, scale=1e17))
        expect_product(worker, kernel, bf16(rng, 3, 300, scale=1e-15), bf16(rng, 5, 300, scale=1e-9))


@check("s06.7")
def requested_bytes(emulator: Worker, rng: Generator) -> None:
    """matmul_tiled requests at most M · N · K / 2 bytes of global memory, an eighth of what matmul_naive does."""
    for tiles in ((2, 2, 4), (3, 5, 10)):
        m, n, k = (32 * number + int(rng.integers(-3, 4)) for number in tiles)
        x, w = bf16(rng, m, k), bf16(rng, n, k)
        counted = expect_counted(emulator, "matmul_tiled", Out((m, n)), x, w)
        requested, allowed = counted.load_bytes + counted.store_bytes, m * n * k // 2
        require(
            requested <= allowed,
            f"matmul_tiled requests {requested:,} bytes{busiest(counted.sites)} at M, N, K = {m}, {n}, {k}; at most "
            f"{allowed:,} are allowed: bring each element to shared memory once per tile.",
            "TOO_SLOW",
            figure=requested,
            threshold=allowed,
        )


@check("s06.8")
def linear_model_shapes(worker: Worker, rng: Generator) -> None:
    """linear is right at the sizes of a model, into bf16 and into float32."""
    for m, n, k in ((5, 512, 2048), (1, 1000, 2048), (17, 1024, 288)):
        x, weight = bf16(rng, m, k), bf16(rng, n, k)
        expect_linear(worker, x, weight)
        expect_linear(worker, x, weight, np.float32)


@check("s06.9")
def linear_empty(worker: Worker, rng: Generator) -> None:
    """linear overwrites NaN in its output, gives zeros at K = 0, accepts M = 0 and N = 0, refuses other shapes."""
    for dtype in (BF16, np.float32):
        for m, n, k in ((3, 4, 0), (0, 4, 5), (3, 0, 5), (0, 0, 0), (1, 1, 1), (2, 3, 1)):
            expect_linear(worker, bf16(rng, m, k), bf16(rng, n, k), dtype)
    for shape, weight in (((3, 5), (4, 2)), ((4, 3), (4, 2)), ((3, 4), (4, 3))):
        arguments = Out(shape), OnDevice(bf16(rng, 3, 2)), OnDevice(bf16(rng, *weight))
        expect_error(partial(worker.call, "linear.linear", *arguments), "ValueError")


@check("s06.10")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """Both kernels share their work among threads that never race, and more rows get more of them."""
    w = bf16(rng, int(rng.integers(30, 40)), int(rng.integers(30, 40)))
    few, many = ((Out((m, len(w))), bf16(rng, m, w.shape[1]), w) for m in (8, 256))
    several_tiles = Out((20, 33)), bf16(rng, 20, 70), bf16(rng, 33, 70)
    for kernel, planned in (("matmul_naive", ("w",)), ("matmul_tiled", ())):
        expect_parallel(emulator, worker, kernel, few, many, planned=planned)
        expect_launch(emulator, kernel, *several_tiles)


@check("s06.11")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when matmul_tiled makes all of its matrix products."""
    expect_in_model(tiny, 32, linear=lambda x, w: worker.launch("matmul_tiled", Out((len(x), len(w))), x, w))
