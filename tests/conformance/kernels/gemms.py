"""Cases of gemms.cu. Values are small integers, so that sums are exact in any order."""

from collections.abc import Callable

import numpy as np

from tests.conformance.table import Launch, Table

table = Table("gemms.cu")


def product(m: int, n: int, k: int) -> Callable[[np.random.Generator], Launch]:
    def draw(rng: np.random.Generator) -> Launch:
        a, b, c = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
        sizes = [np.int32(m), np.int32(n), np.int32(k), np.float32(0.5), np.float32(-2)]
        return Launch([c, a, b, *sizes], [0.5 * (a @ b) - 2 * c])

    return draw


for name, shape, tile, threads in (
    ("coalesced", (37, 45, 20), 16, 256), ("tiled", (32, 48, 32), 16, 256), ("blocktiling_1d", (64, 96, 20), 32, 128),
    ("blocktiling_2d", (64, 96, 24), 32, 64),
):  # fmt: skip
    across_m, across_n = -(-shape[0] // tile), -(-shape[1] // tile)
    grid = (across_n, across_m) if "blocktiling" in name else (across_m, across_n)
    function = product(*shape)
    function.__name__ = name
    table.case(grid=grid, block=threads)(function)


@table.case(grid=(3, 2), block=(32, 8))
def bias_backward(rng: np.random.Generator) -> Launch:
    x = rng.integers(-99, 99, (100, 70)).astype(np.float32)
    sums = rng.integers(-99, 99, 70).astype(np.float32)
    return Launch([sums, x, np.int32(100), np.int32(70)], [sums + x.sum(0)])
