"""Cases of language.cu."""

import numpy as np

from tests.conformance.table import Launch, Table, blank

table = Table("language.cu")


def remainder(x: np.ndarray, n: int) -> np.ndarray:
    """C's x % n, with the sign of x."""
    return np.fmod(x, n)


@table.case(grid=3, block=64)
def templates_and_lambdas(rng: np.random.Generator) -> Launch:
    x = rng.integers(-20, 20, 150, dtype=np.int32)
    total = remainder(x, 10) ** 3 + (x >> 1) + 1
    total += x + 2 + remainder(x, 5) ** 4
    total += x + 7 + 3 * x + 1
    total += x + 2 - remainder(x, 100) * 3
    expected = np.where((x >= -5) & (x < 5), total, -total - 10).astype(np.int32)
    return Launch([blank(x.shape), x, np.int32(x.size)], [expected])
