"""Stage 3: RMSNorm, the first reduction, once by a tree in shared memory and once by warp shuffles."""

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import Counters, Out, Worker, check, expect, property_check, require
from grader.checking.draws import Array, bf16, to_bf16
from grader.checks.support.launches import expect_counted, expect_rounded
from grader.checks.support.parallelism import expect_parallel
from grader.checks.support.plug_in import expect_in_model
from grader.observe.traffic import busiest
from grader.oracle.references import ReferenceModel

EPS = 1e-5
SUMMED = 2048
"""Columns of rows whose sums are taken warp by warp, of blocks of these sizes."""
BLOCKS = (64, 128, 256, 512, 1024)
STEPS = 5
"""Shuffles by which 32 lanes add up a number each."""
WIDTHS = (1, 2, 31, 32, 33, 127, 128, 129, 288, 1000, 1009, 2048, 2880)
EQUAL = 1 + np.array([15, 64, 47]) / 128
"""Whose squares, summed in bf16, err most after 128, 64 and 32 terms: the shares of a thread in blocks up to 512."""


def expect_widths(worker: Worker, rng: Generator, kernel: str) -> None:
    for tokens, width in [(0, 8), *((3, width) for width in WIDTHS)]:
        x, weight = bf16(rng, tokens, width), bf16(rng, width)
        expect(worker.launch(kernel, Out(x.shape), x, weight, EPS), oracle.rmsnorm(x, weight, EPS))
    x = to_bf16(np.broadcast_to(EQUAL[:, None], (len(EQUAL), 16_384)))
    weight = to_bf16(np.full(16_384, 1.9921875))  # just below 2: a bf16 step is smallest there, relative to the value
    expect(worker.launch(kernel, Out(x.shape), x, weight, EPS), oracle.rmsnorm(x, weight, EPS))


def expect_sums(worker: Worker, rng: Generator, kernel: str) -> None:
    """One warp's sum of squares is 256, and those of all others are just under half a step of bf16 beside it."""
    for block in BLOCKS:
        x = rng.standard_normal((1, SUMMED // block, block // 32, 32))
        x /= np.sqrt(np.sum(x**2, axis=(1, 3), keepdims=True))
        x *= np.sqrt([[[[256.0]], *[[[0.95]]] * (block // 32 - 1)]]).reshape(1, 1, -1, 1)
        x, weight = to_bf16(x.reshape(1, SUMMED)), bf16(rng, SUMMED)
        expect_rounded(worker, kernel, Out(x.shape), x, weight, EPS)


def expect_scales(worker: Worker, rng: Generator, kernel: str) -> None:
    scales = np.array([1, 1e-2, 1e-3, 0, 1e-5, 3e2, 1e15, 1], np.float32)
    for width, eps in ((1000, EPS), (288, 1e-6)):
        x = to_bf16(scales[:, None] * rng.standard_normal((len(scales), width)))
        x[-1, width // 2] = 3e4  # one outlier in a row
        weight = bf16(rng, width)
        expect(worker.launch(kernel, Out(x.shape), x, weight, eps), oracle.rmsnorm(x, weight, eps))


def draw_rows(rng: Generator) -> tuple[Array, Array]:
    """x and weight of a few rows about 1,000 wide."""
    width = int(rng.integers(900, 1100))
    return bf16(rng, int(rng.integers(2, 5)), width), bf16(rng, width)


def expect_few_requests(counted: Counters, kernel: str, size: int) -> None:
    requested = counted.of(1)[0]
    require(
        requested <= 2 * size,
        f"{kernel} requests {requested:,} bytes of x{busiest(counted.sites, 'x')}, which has {size:,}: each element "
        "may be read twice at most.",
        "TOO_SLOW",
        figure=requested,
        threshold=2 * size,
    )


@check("s03.1")
def tree_widths(worker: Worker, rng: Generator) -> None:
    """rmsnorm_tree is right at widths of 1, 33, 1,000, 2,048 and 2,880 and around the block size."""
    expect_widths(worker, rng, "rmsnorm_tree")


@check("s03.2")
def shuffle_widths(worker: Worker, rng: Generator) -> None:
    """rmsnorm is right at widths of 1, 33, 1,000, 2,048 and 2,880 and around the block size."""
    expect_widths(worker, rng, "rmsnorm")


@check("s03.3")
def tree_scales(worker: Worker, rng: Generator) -> None:
    """rmsnorm_tree is right for quiet rows, where eps matters, for loud rows and for rows of zeros."""
    expect_scales(worker, rng, "rmsnorm_tree")
    expect_sums(worker, rng, "rmsnorm_tree")


@check("s03.4")
def shuffle_scales(worker: Worker, rng: Generator) -> None:
    """rmsnorm is right for quiet rows, where eps matters, for loud rows and for rows of zeros."""
    expect_scales(worker, rng, "rmsnorm")
    expect_sums(worker, rng, "rmsnorm")


@check("s03.5")
def rows_apart(worker: Worker, rng: Generator) -> None:
    """Each of many rows is divided by its own root mean square, in both kernels."""
    x = to_bf16(rng.standard_normal((67, 96)) * 2.0 ** rng.integers(-6, 7, (67, 1)))
    weight = bf16(rng, 96)
    for kernel in ("rmsnorm_tree", "rmsnorm"):
        expect(worker.launch(kernel, Out(x.shape), x, weight, EPS), oracle.rmsnorm(x, weight, EPS))


@check("s03.6")
@property_check(tokens=st.integers(0, 7), width=st.integers(1, 580), eps=st.sampled_from([1e-6, 1e-5, 0.1]))
def property_of_both(worker: Worker, rng: Generator, tokens: int, width: int, eps: float) -> None:
    """Both kernels are right at any shape and eps."""
    x, weight = bf16(rng, tokens, width, scale=0.1), bf16(rng, width)
    for kernel in ("rmsnorm_tree", "rmsnorm"):
        expect(worker.launch(kernel, Out(x.shape), x, weight, eps), oracle.rmsnorm(x, weight, eps))


@check("s03.7")
def tree_requests(emulator: Worker, rng: Generator) -> None:
    """rmsnorm_tree sums without shuffles and requests its input at most twice."""
    x, weight = draw_rows(rng)
    counted = expect_counted(emulator, "rmsnorm_tree", Out(x.shape), x, weight, EPS)
    expect_few_requests(counted, "rmsnorm_tree", x.nbytes)
    message = f"rmsnorm_tree makes {counted.shuffles:,} shuffles: it must exchange sums in shared memory alone."
    require(counted.shuffles == 0, message, "INCORRECT_VALUE", figure=counted.shuffles, threshold=0)


@check("s03.8")
def shuffle_requests(emulator: Worker, rng: Generator) -> None:
    """rmsnorm sums with shuffles, passes at most 3 barriers and requests its input at most twice."""
    x, weight = draw_rows(rng)
    counted = expect_counted(emulator, "rmsnorm", Out(x.shape), x, weight, EPS)
    expect_few_requests(counted, "rmsnorm", x.nbytes)
    fewest = STEPS * counted.threads // 32
    message = (
        f"rmsnorm makes {counted.shuffles:,} shuffles: a warp adds up its lanes' sums in {STEPS}, here {fewest:,}."
    )
    require(counted.shuffles >= fewest, message, figure=counted.shuffles, threshold=fewest)
    message = f"rmsnorm passes {counted.barriers} barriers; with shuffles at most 3 are needed."
    require(counted.barriers <= 3, message, "TOO_SLOW", figure=counted.barriers, threshold=3)


@check("s03.9")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """Both kernels share their work among threads that never race, and more rows get more of them."""
    width = int(rng.integers(128, 160))
    few, many = ((Out(x.shape), x, bf16(rng, width), EPS) for x in (bf16(rng, 2, width), bf16(rng, 64, width)))
    for kernel in ("rmsnorm_tree", "rmsnorm"):
        expect_parallel(emulator, worker, kernel, few, many)


@check("s03.10")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your rmsnorm runs in all of its layers."""
    expect_in_model(tiny, rmsnorm=lambda x, weight, eps: worker.launch("rmsnorm", Out(x.shape), x, weight, eps))
