"""Cases of warps.cu."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.conformance.table import Launch, Table, blank

table = Table("warps.cu")
LANES = np.arange(32)


def shuffled(x: np.ndarray, width: int) -> np.ndarray:
    """[4, 32]: what each lane gets from the four kinds of shuffles of warps.cu."""
    first = LANES // width * width
    up, down, other = LANES - 3, LANES + 2, LANES ^ 5
    sources = [
        first + (LANES * 5 + 3) % width,
        np.where(up >= first, up, LANES),
        np.where(down < first + width, down, LANES),
        np.where(other < first + width, other, LANES),
    ]
    return x[np.array(sources)]


def add_shuffle(name: str, dtype: Any, width: int, lanes: int = 1) -> None:
    def draw(rng: np.random.Generator) -> Launch:
        x = rng.integers(-(2**30), 2**30, (32, lanes)).astype(np.float64)
        x = x.astype(np.int64).astype(dtype) if np.dtype(dtype).kind in "iu" else (x / 2**28).astype(dtype)
        return Launch([blank((4, 32, lanes), dtype), x, np.int32(width)], [shuffled(x, width)])

    draw.__name__ = name
    table.case()(draw)


for name, dtype, width in (
    ("shuffle_int", np.int32, 32), ("shuffle_unsigned", np.uint32, 16), ("shuffle_long", np.int64, 8),
    ("shuffle_unsigned_long", np.uint64, 4), ("shuffle_float", np.float32, 2), ("shuffle_double", np.float64, 32),
    ("shuffle_bf16", ml_dtypes.bfloat16, 16), ("shuffle_half", np.float16, 32),
):  # fmt: skip
    add_shuffle(name, dtype, width)
add_shuffle("shuffle_bf162", ml_dtypes.bfloat16, 32, lanes=2)
add_shuffle("shuffle_half2", np.float16, 8, lanes=2)


@table.case()
def shuffle_part(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, 32, dtype=np.int32)
    expected = np.full(32, -1, np.int32)
    expected[8:16] = x[8:16].sum()
    return Launch([blank(32), x], [expected])


@table.case(grid=3, block=192)
def block_sum(rng: np.random.Generator) -> Launch:
    x = rng.integers(-(2**40), 2**40, (3, 192)).astype(np.float64)
    return Launch([blank(3, np.float64), x], [x.sum(1)])


def bits(flags: np.ndarray) -> int:
    """The mask of the lanes whose flag is true."""
    return sum(1 << int(lane) for lane in np.flatnonzero(flags))


@table.case()
def votes(rng: np.random.Generator) -> Launch:
    x = rng.integers(-99, 91, 32, dtype=np.int32)
    ballot = np.full(32, bits(x > 0), np.uint32)
    ballot[:16] ^= np.uint32(bits(x[:16] % 2 == 1))
    rows = [ballot, np.zeros(32), np.ones(32), np.full(32, 2**32 - 1)]
    return Launch([blank((4, 32), np.uint32), x], [np.array(rows, np.uint32)])


def each(values: list[Any], dtype: Any) -> np.ndarray:
    """[values, 32]: every lane gets the same."""
    return np.repeat(np.array(values).astype(dtype)[:, None], 32, 1)


@table.case()
def reductions(rng: np.random.Generator) -> Launch:
    x = rng.integers(-(2**25), 2**25, 32, dtype=np.int32)
    u = x.view(np.uint32)
    add: Callable[..., Any] = np.add.reduce
    of_signed = each([add(x, dtype=np.int32), x.min(), x.max()], np.int32)
    of_unsigned = each(
        [
            add(u, dtype=np.uint32), u.min(), u.max(), np.bitwise_and.reduce(u | np.uint32(0xFF)),
            np.bitwise_or.reduce(u & np.uint32(0xFFF)), np.bitwise_xor.reduce(u),
        ],
        np.uint32,
    )  # fmt: skip
    return Launch([blank((3, 32)), blank((6, 32), np.uint32), x], [of_signed, of_unsigned])


@table.case()
def matches(rng: np.random.Generator) -> Launch:
    x = rng.integers(-2, 3, 32, dtype=np.int32)
    same = np.array([bits(x == value) for value in x], np.uint32)
    return Launch([blank((5, 32), np.uint32), x], [np.array([same, same, *each([0, 2**32 - 1, 1], np.uint32)])])


@table.case(block=64)
def syncwarp(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, (2, 32), dtype=np.int32)
    return Launch([blank((2, 32)), x], [np.cumsum(x, 1, dtype=np.int32)])


@table.case()
def compact_warp(rng: np.random.Generator) -> Launch:
    x = rng.integers(-50, 50, 32, dtype=np.int32)
    expected = blank(32)
    expected[: (x > 0).sum()] = x[x > 0]
    return Launch([blank(32), blank(1), x], [expected, np.array([(x > 0).sum()], np.int32)])
