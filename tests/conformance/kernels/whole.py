"""Cases of whole.cu."""

import math

import numpy as np

from tests.conformance.table import Launch, Table, blank

table = Table("whole.cu")


@table.case(grid=2, block=32)
def double_in_grid(rng: np.random.Generator) -> Launch:
    x = rng.standard_normal(100, np.float32)
    return Launch([x, np.int32(100)], [2 * x])


@table.case(grid=2, block=32, ulps=16)
def normal_values(rng: np.random.Generator) -> Launch:
    x = rng.uniform(-2, 2, 50)
    below = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x])
    out = np.concatenate([below, np.zeros(50), x / 8 * 0.2 + 7.5])
    return Launch([blank(150, np.float64), x, np.int32(50)], [out])


@table.case(grid=2, block=32)
def larger_float(rng: np.random.Generator) -> Launch:
    x, y = rng.standard_normal((2, 50), np.float32)
    return Launch([blank(50, np.float32), x, y, np.int32(50)], [np.maximum(x, y) + np.float32(11)])


@table.case(grid=2, block=32)
def add_int(rng: np.random.Generator) -> Launch:
    x, y = rng.integers(-50, 50, (2, 50), dtype=np.int32)
    return Launch([blank(50), x, y, np.int32(50)], [x + y])


@table.case(grid=2, block=32)
def steps_to_escape(rng: np.random.Generator) -> Launch:
    c = rng.integers(-16, 8, (50, 2)).astype(np.float32) / 8
    z, steps = np.zeros(50, np.complex128), np.zeros(50, np.int32)
    for _ in range(50):
        inside = np.abs(z) < 2
        z = np.where(inside, z * z + c[:, 0] + 1j * c[:, 1], z)
        steps += inside
    return Launch([blank(50), c, np.int32(50)], [steps + np.int32(4)])
