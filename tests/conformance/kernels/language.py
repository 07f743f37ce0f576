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


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def collatz(n: int) -> int:
    return 0 if n == 1 else 1 + collatz(3 * n + 1 if n % 2 else n // 2)


@table.case()
def generic_code(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, 32, dtype=np.int32)
    words = x.view(np.uint32) * np.uint32(2654435761)
    by_lane = [
        [fibonacci(lane // 2), 5 if lane > 16 else 6, 5 if lane > 16 else 6, collatz(lane + 1)] for lane in range(32)
    ]
    rows = [
        x.max() + np.repeat(x.reshape(8, 4).max(1), 4),
        x.astype(np.int64) * (3 + 6) + 1 + 2 - 3,
        (words >> 16).astype(np.int64) + ((words & np.uint32(255)).astype(np.int64) << 20),
        [values[lane % 4] for lane, values in enumerate(by_lane)],
    ]
    return Launch([blank((4, 32), np.int64), x], [np.array(rows, np.int64)])
