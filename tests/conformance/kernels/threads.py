"""Cases of threads.cu."""

import numpy as np

from tests.conformance.table import Launch, Table, blank

table = Table("threads.cu")


@table.case(grid=(3, 2, 2), block=(5, 4, 3))
def indices(rng: np.random.Generator) -> Launch:
    numbers = np.arange(3 * 2 * 2 * 5 * 4 * 3, dtype=np.int32)
    return Launch([np.zeros_like(numbers)], [numbers * 1000 + 241])


@table.case(grid=2, block=96)
def grid_stride(rng: np.random.Generator) -> Launch:
    x = rng.integers(-100, 100, 700, dtype=np.int32)
    return Launch([blank(x.shape), x, np.int32(x.size)], [(x * 6 - 6) ^ 3])


@table.case(grid=4, block=(70,))
def barrier_votes(rng: np.random.Generator) -> Launch:
    x = rng.integers(-100, 100, (4, 70), dtype=np.int32)
    x[1], x[2] = 5, -5
    flags = x > 0
    return Launch([blank((4, 3)), x], [np.stack([flags.sum(1), flags.all(1), flags.any(1)], 1).astype(np.int32)])


@table.case(grid=6, block=64)
def last_block(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, (6, 64), dtype=np.int32)
    total, partial = x.sum(dtype=np.int32, keepdims=True).reshape(1), x.sum(1, dtype=np.int32)
    return Launch([blank(1), blank(6), np.zeros(1, np.uint32), x], [total, partial, np.array([6], np.uint32)])


@table.case(block=1)
def clocks(rng: np.random.Generator) -> Launch:
    return Launch([blank(3), np.ones(2, np.float32)], [np.ones(3, np.int32)])


def signed(x: int, bits: int) -> int:
    """The two's complement number of so many bits that x is, modulo 2^bits."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def reverse(x: int, bits: int) -> int:
    return int(f"{x:0{bits}b}"[::-1], 2)


def byte_perm(a: int, b: int, selector: int) -> int:
    pool = (b << 32 | a).to_bytes(8, "little")
    return int.from_bytes(bytes(pool[selector >> 4 * k & 7] for k in range(4)), "little")


def bit_results(a: int, b: int) -> list[int]:
    """What bit_intrinsics computes, by Python's integers."""
    pair, low = a << 32 | b, (1 << 64) - 1
    high = b << 32 | a  # of funnel shifts: the second operand is the upper word
    first = {n: (n & -n).bit_length() for n in (a, pair)}
    signed_a, signed_b = signed(a, 32), signed(b, 32)
    return [
        a.bit_count(), pair.bit_count(), 32 - a.bit_length(), 64 - pair.bit_length(), first[a], first[pair],
        reverse(a, 32), reverse(pair, 64), byte_perm(a, b, 0x7210), byte_perm(a, b, b & 0x7777),
        (high << b % 32 & low) >> 32, high >> b % 32, (high << min(b % 48, 32) & low) >> 32, high >> min(b % 48, 32),
        a * b >> 32, signed_a * signed_b >> 32, pair * pair >> 64, signed(pair, 64) * -3 >> 64,
        (a & 0xFFFFFF) * (b & 0xFFFFFF), signed(a, 24) * signed(b, 24), abs(signed_a - signed_b) + b, abs(a - b) + 1,
        a & 0x3FFFFFFF,
    ]  # fmt: skip


@table.case(grid=2, block=128)
def bit_intrinsics(rng: np.random.Generator) -> Launch:
    x, y = (rng.integers(0, 2**32, 256, dtype=np.uint32) >> rng.integers(0, 32, 256, dtype=np.uint32) for _ in "xy")
    x[:3], y[:3] = [0, 2**31, 1], [0, 2**32 - 1, 2**31]
    rows = [[result % 2**32 for result in bit_results(int(a), int(b))] for a, b in zip(x, y, strict=True)]
    expected = np.array(rows, np.uint32).T.copy()
    return Launch([blank(expected.shape, np.uint32), x, y, np.int32(256)], [expected])


@table.case(grid=2, block=64)
def minima(rng: np.random.Generator) -> Launch:
    x, y = (rng.integers(-(2**20), 2**20, 128, dtype=np.int32) for _ in "xy")
    u, v = x.view(np.uint32), y.view(np.uint32)
    rows = [
        np.minimum(x, y), np.maximum(x, y), np.minimum(u, v), np.maximum(x, y).astype(np.int64) << 20,
        np.maximum(x, y), np.trunc(np.maximum(x, np.float64(0.5)) + np.minimum(x, 0.25)), np.abs(x) + np.abs(y),
        np.minimum(u, 7) + np.maximum(x, 0),
    ]  # fmt: skip
    expected = np.array([row.astype(np.int64) for row in rows])
    return Launch([blank(expected.shape, np.int64), x, y, np.int32(128)], [expected])


@table.case(block=64)
def packed_products(rng: np.random.Generator) -> Launch:
    x, y = (rng.integers(-128, 128, (64, 4), dtype=np.int8) for _ in "xy")
    expected = (x.astype(np.int32) * y).sum(1) + 5
    return Launch([blank(64), x, y], [expected.astype(np.int32)])


@table.case(grid=2, says="block 1 of 2: text  1.50 1099511627776 %\n")
def say(rng: np.random.Generator) -> Launch:
    return Launch([np.int32(3)], [])


@table.case(says="device-side assert triggered")
def fail_assert(rng: np.random.Generator) -> Launch:
    return Launch([blank(1), np.int32(3)], [])


@table.case(block=1, says="unspecified launch failure")
def trap(rng: np.random.Generator) -> Launch:
    return Launch([blank(1), np.int32(4)], [])
