"""Cases of lists.cu."""

from typing import Any

import numpy as np

from tests.conformance.table import Launch, Table, blank

table = Table("lists.cu")


def add_reduction(name: str, blocks: int, threads: int, of_block: int, dtype: Any = np.int32) -> None:
    """`of_block` elements a block: its own ones in a row, or with reduce6 every so many."""

    def draw(rng: np.random.Generator) -> Launch:
        n = blocks * of_block - 13
        x = rng.integers(-1000, 1000, n).astype(dtype)
        rows = np.append(x, np.zeros(13, dtype)).reshape(-1, blocks, 2 * threads if name == "reduce6" else of_block)
        sums = rows.sum((0, 2), dtype=dtype)
        return Launch([blank(blocks, dtype), x, np.uint32(n)], [sums])

    draw.__name__ = name
    table.case(grid=blocks, block=threads, shared=threads * np.dtype(dtype).itemsize)(draw)


add_reduction("reduce0", 3, 128, 128)
add_reduction("reduce1", 3, 128, 128)
add_reduction("reduce4", 3, 128, 256, np.float64)
add_reduction("reduce6", 2, 256, 1536)


@table.case(block=128, shared=256 * 4)
def prescan(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, 256, dtype=np.int32)
    return Launch([blank(256), x, np.int32(256)], [np.cumsum(x, dtype=np.int32) - x])


@table.case(block=128)
def bitonic_sort(rng: np.random.Generator) -> Launch:
    keys = rng.permutation(5000)[:256].astype(np.uint32)
    order = np.argsort(keys)
    values = np.arange(256, dtype=np.uint32)
    return Launch([keys, values, np.uint32(256), np.uint32(1)], [keys[order], values[order]])


@table.case(grid=4, block=128)
def stencil_1d(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, 450, dtype=np.int32)
    return Launch([blank(450), x, np.int32(450)], [np.convolve(x, np.ones(7, np.int32), "same")])


@table.case(block=128)
def compact(rng: np.random.Generator) -> Launch:
    x = rng.integers(-50, 50, 500, dtype=np.int32)
    out = blank(500)
    out[: (x > 0).sum()] = x[x > 0]
    return Launch([blank(500), blank(1), x, np.int32(500)], [out, np.array([(x > 0).sum()], np.int32)])


@table.case(grid=(3, 3), block=(16, 8))
def blur(rng: np.random.Generator) -> Launch:
    image = rng.integers(0, 256, (20, 37), dtype=np.uint8)
    wide = np.pad(image, 1, mode="edge").astype(int)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3))
    out = windows.sum((2, 3)) // 9
    return Launch([blank(image.shape, np.uint8), image, np.int32(37), np.int32(20)], [out.astype(np.uint8)])
