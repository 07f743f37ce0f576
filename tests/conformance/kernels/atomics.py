"""Cases of atomics.cu."""

from typing import Any

import ml_dtypes
import numpy as np

from tests.conformance.table import Launch, Table

table = Table("atomics.cu")


def integer_results(x: np.ndarray, start: np.ndarray) -> list[Any]:
    """Cells 0 to 4 after integer_operations with every element of x."""
    kind = x.dtype.type
    return [
        min(x.min(), start[0]),
        max(x.max(), start[1]),
        start[2] & np.bitwise_and.reduce(x | kind(0xF0)),
        start[3] | np.bitwise_or.reduce(x & kind(0xFFF)),
        start[4] ^ np.bitwise_xor.reduce(x),
    ]


@table.case(grid=2, block=64)
def words(rng: np.random.Generator) -> Launch:
    x = rng.integers(-(2**30), 2**30, 128, dtype=np.int32)
    u = x.view(np.uint32)
    ints, unsigneds = np.arange(5, 14, dtype=np.int32), np.arange(5, 16, dtype=np.uint32)
    ints[2], unsigneds[2] = -1, 2**32 - 1
    of_ints = [*integer_results(x, ints), ints[5] + x.sum(dtype=np.int32), ints[6] - x.sum(dtype=np.int32), 76, 77]
    ring_up, ring_down = (12 + 128) % 51, (13 - 128) % 51
    tail = [(10 + int(u.sum(dtype=np.uint64))) % 2**32, (11 - 128) % 2**32, ring_up, ring_down, 14 + 128, 63]
    of_unsigneds = [*integer_results(u, unsigneds), *tail]
    return Launch([ints, unsigneds, x], [np.array(of_ints, np.int32), np.array(of_unsigneds, np.uint32)])


@table.case(grid=2, block=64)
def double_words(rng: np.random.Generator) -> Launch:
    x = rng.integers(-(2**60), 2**60, 128)
    longs, unsigneds = np.arange(5, 11), np.arange(5, 11, dtype=np.uint64)
    longs[2], unsigneds[2] = -1, 2**64 - 1
    of_longs = [*integer_results(x, longs), longs[5] + x.sum()]
    of_unsigneds = [*integer_results(x.view(np.uint64), unsigneds), 10 + (128 << 33)]
    return Launch([longs, unsigneds, x], [np.array(of_longs), np.array(of_unsigneds, np.uint64)])


@table.case(grid=3, block=64)
def floats(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, (3, 64)).astype(np.float32)
    sums = np.array([x.sum(), x.max(), *x.sum(1)], np.float32)
    start = np.array([0, -2000, 0, 0, 0], np.float32)
    return Launch([start, np.zeros(2), x], [sums, np.array([x.sum() * 0.5, x.sum()], np.float64)])


@table.case(block=96)
def halves(rng: np.random.Generator) -> Launch:
    expected = [np.array(values) for values in ([96.0], [96.0, 48.0], [96.0], [96.0, -48.0])]
    types = (np.float16, np.float16, ml_dtypes.bfloat16, ml_dtypes.bfloat16)
    typed = [values.astype(dtype) for values, dtype in zip(expected, types, strict=True)]
    return Launch([np.zeros_like(values) for values in typed], typed)


@table.case(grid=3, block=50)
def old_values(rng: np.random.Generator) -> Launch:
    seen, counter, ring = np.zeros(150, np.int32), np.zeros(1, np.int32), np.zeros(1, np.uint32)
    return Launch([seen, counter, ring], [seen + 2, counter + 150, ring])


@table.case(grid=3, block=1)
def locked(rng: np.random.Generator) -> Launch:
    return Launch([np.zeros(1, np.int32), np.zeros(2, np.int32)], [np.zeros(1, np.int32), np.array([3, 13], np.int32)])


@table.case(grid=3, block=64)
def histogram(rng: np.random.Generator) -> Launch:
    x = rng.integers(0, 256, 1000, dtype=np.uint8)
    return Launch([np.zeros(16, np.uint32), x, np.int32(1000)], [np.bincount(x >> 4, minlength=16).astype(np.uint32)])


@table.case(block=1)
def exchange(rng: np.random.Generator) -> Launch:
    x = np.array([7], np.float32)
    return Launch([np.array([5], np.float32), np.zeros(1, np.int32), x], [x, np.array([5], np.int32)])
