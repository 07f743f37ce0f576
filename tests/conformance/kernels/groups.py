"""Cases of groups.cu."""

from typing import Any

import numpy as np

from tests.conformance.kernels.warps import bits
from tests.conformance.table import Launch, Table, blank

table = Table("groups.cu")
THREADS = 96


def add_tiles(size: int) -> None:
    def draw(rng: np.random.Generator) -> Launch:
        x = rng.integers(-99, 100, (THREADS // size, size), dtype=np.int32)
        lanes, rows = np.arange(size), np.arange(len(x))[:, None]

        def of_tile(values: Any) -> np.ndarray:
            return np.repeat(values[:, None], size, 1)

        down, up = np.minimum(lanes + 1, size - 1), np.maximum(lanes - 1, 0)
        out = [
            lanes + 100 * rows + 10000 * len(x),
            x[:, :1] - x[:, up] + x[:, down],
            x[:, lanes ^ size // 2] + size,
            of_tile(x.sum(1) + x.max(1) - x.min(1)),
            of_tile(
                np.bitwise_and.reduce(x, 1)
                ^ np.bitwise_or.reduce(x & 0xFF, 1)
                ^ (np.bitwise_xor.reduce(x, 1) << 8)
            ),
        ]  # fmt: skip
        classes = np.trunc(x / 64)
        votes = [
            of_tile(np.array([bits(row > 0) for row in x])),
            of_tile((x > 90).any(1) + 2 * (x > -95).all(1)),
            np.array([[bits(row == value) for value in row] for row in classes]),
        ]
        expected = [np.array(rows).reshape(-1, THREADS).astype(np.uint32).view(np.int32) for rows in (out, votes)]
        return Launch([blank((5, THREADS)), blank((3, THREADS)), x], expected)

    draw.__name__ = f"tiles_of_{size}"
    table.case(block=THREADS)(draw)


for tile_size in (32, 8, 2):
    add_tiles(tile_size)


@table.case(grid=3, block=128)
def block_reduce(rng: np.random.Generator) -> Launch:
    x = rng.integers(-500, 500, (3, 300)).astype(np.float32)
    return Launch([blank(3, np.float32), x, np.int32(300)], [x.sum(1) + 31])


@table.case(block=(32, 4))
def generic_groups(rng: np.random.Generator) -> Launch:
    x = rng.integers(-500, 500, 128, dtype=np.int32)
    out = blank((3, 128))
    warps, quarters = x.reshape(4, 32), x.reshape(16, 8)
    out[0] = np.repeat(warps.sum(1), 32) + np.repeat(quarters[:, 3], 8)
    out[1, :9] = [x.sum(), *x.reshape(8, 16).sum(1)]
    out[2] = np.arange(128)
    return Launch([blank((3, 128)), x], [out])


@table.case(block=32)
def divergent_masks(rng: np.random.Generator) -> Launch:
    return Launch([blank((2, 32), np.uint32)], [np.ones((2, 32), np.uint32)])


@table.case(block=64)
def places(rng: np.random.Generator) -> Launch:
    x = rng.integers(-50, 50, 200, dtype=np.int32)
    count = (x > 0).sum()
    taken = (np.arange(200) < count).astype(np.int32)
    return Launch([np.zeros_like(x), np.zeros(1, np.int32), x, np.int32(200)], [taken, np.array([count], np.int32)])


@table.case()
def partitions(rng: np.random.Generator) -> Launch:
    x = rng.integers(-50, 50, 32, dtype=np.int32)
    flags, labels = x > 0, x & 3
    rank = [(flags[:lane] == flags[lane]).sum() for lane in range(32)]
    size = np.where(flags, flags.sum(), (~flags).sum())
    sums = [x[labels == label].sum() + x[labels == label][0] for label in labels]
    out = np.array([size * 100 + rank, sums, np.cumsum(x) * 3 - (np.cumsum(x) - x)], np.int32)
    return Launch([blank((3, 32)), x], [out])
