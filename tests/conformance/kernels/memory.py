"""Cases of memory.cu."""

import ml_dtypes
import numpy as np

from tests.conformance.table import Launch, Table, blank

table = Table("memory.cu")


@table.case(grid=(3, 2), block=(16, 16))
def transpose(rng: np.random.Generator) -> Launch:
    x = rng.normal(size=(25, 37)).astype(np.float32)
    return Launch([blank((37, 25), np.float32), x, np.int32(25), np.int32(37)], [x.T.copy()])


@table.case(block=64)
def static_shared(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, 64, dtype=np.int32)
    return Launch([blank((2, 64)), x], [np.array([x[0] + 3 * x[::-1] + 1, 2 * x[::-1]], np.int32)])


@table.case(block=48, shared=48 * 10)
def dynamic_shared(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, 48, dtype=np.int32)
    numbers = np.arange(48)
    rows = [x[::-1] + np.roll(x, -1) + 1 + x, x[::-1] + numbers[::-1], 2 * np.roll(x, -1)]
    halves = (x[::-1] * 0.5).astype(np.float32)
    return Launch([blank((3, 48)), blank(48, np.float32), x, np.int32(48)], [np.array(rows, np.int32), halves])


@table.case(block=64, shared=90 * 1024)
def large_dynamic_shared(rng: np.random.Generator) -> Launch:
    rows, columns = np.arange(90 * 4), np.arange(64)[::-1]
    return Launch([blank(64), np.int32(rows.size)], [(rows[:, None] ^ columns).sum(0).astype(np.int32)])


@table.case(block=32)
def variables(rng: np.random.Generator) -> Launch:
    x = rng.integers(-100, 100, 40).astype(np.float32)
    weights = rng.integers(-9, 9, 8).astype(np.float32)
    i = np.arange(32)
    out = 2 * np.convolve(x, weights[::-1], "valid")[:32] + np.array([2, 3, 5, 7, 11])[i % 5]
    out += np.array([1, 3, 7, 15])[i % 4] + np.array([0, 1, 4, 9])[i % 4] - 8
    return Launch(
        [blank(32, np.float32), x],
        [out.astype(np.float32)],
        written={"weights": weights, "corner": np.array([5, -8], np.int32), "counter": np.array([10], np.int32)},
        read={
            "counter": np.array([74], np.int32),
            "table": x[:32].reshape(4, 8),
            "total": np.array([33], np.int64),
            "primes": np.array([2, 3, 5, 7, 11], np.int32),
            "masks": np.array([1, 3, 7, 15], np.uint32),
            "scale": np.array([2], np.float32),
        },
    )


@table.case()
def struct_arguments(rng: np.random.Generator) -> Launch:
    fields = {"scale": ("f4", 0), "offset": ("i4", 4), "extent": (("i4", 2), 8), "flags": (("u1", 4), 16)}
    formats, offsets = zip(*fields.values(), strict=True)
    parameters = np.zeros((), {"names": [*fields], "formats": formats, "offsets": offsets, "itemsize": 24})
    parameters["scale"], parameters["offset"], parameters["extent"] = 0.5, -3, (4, 5)
    parameters["flags"] = (1, 2, 3, 250)
    particles = np.zeros(20, [("position", "f4", 3), ("mass", "f4"), ("id", "i4")])
    particles["position"] = rng.integers(-50, 50, (20, 3))
    particles["mass"], particles["id"] = rng.integers(1, 9, 20), np.arange(20)
    out = particles["position"].sum(1) * particles["mass"] * 0.5 + (particles["id"] - 3) * 20
    out += parameters["flags"][np.arange(20) % 4]
    return Launch([parameters[()], blank(20, np.float32), particles, np.int32(20)], [out.astype(np.float32)])


@table.case(grid=2, block=64)
def vector_loads(rng: np.random.Generator) -> Launch:
    x = rng.integers(-100, 100, (100, 4)).astype(np.float32)
    pairs = rng.integers(-100, 100, (100, 2), dtype=np.int32)
    out = np.stack([x[:, 3] * x[:, 1], x[:, 2], x[:, 1], x[:, 0] + 1], 1)
    arguments = [blank((100, 4), np.float32), blank((100, 2)), x, pairs, np.int32(100)]
    return Launch(arguments, [out, pairs[:, ::-1].copy()])


@table.case()
def hinted(rng: np.random.Generator) -> Launch:
    x = rng.integers(-1000, 1000, 32, dtype=np.int32)
    halves = np.tile(x.reshape(8, 2, 2).sum(2), (4, 1)).reshape(2, 32)
    expected = np.concatenate([7 * x + np.arange(4)[:, None], halves]).astype(np.int32)
    return Launch([blank((6, 32)), x, np.int32(32)], [expected])


@table.case(block=1)
def vector_types(rng: np.random.Generator) -> Launch:
    sizes = [4, 3, 4, 8, 12, 8, 16, 16, 12, 4, 4, 1, 4, 8, 4, 8, 16, 16, 4, 16]
    a, b, c, d = x = np.array([3, -5, 7, -128], np.int8).astype(int)
    sums = [x.sum(), (x[:3] % 256).sum(), a + b, a % 65536 + d % 65536, a + b + c, (a + b) % 2**32, a + b, a + b]
    expected = np.array([*sizes, *sums, a + b + c + a], np.int64)
    return Launch([blank(29, np.int64), x.astype(np.int8)], [expected])


@table.case()
def packed_halves(rng: np.random.Generator) -> Launch:
    x = rng.normal(size=(32, 4, 2)).astype(ml_dtypes.bfloat16)
    halves = rng.normal(size=(32, 2)).astype(np.float16)
    out = (x.astype(np.float32) * np.array([2, -1], np.float32)).astype(ml_dtypes.bfloat16)
    launch = [blank(x.shape, ml_dtypes.bfloat16), x, halves, np.int32(32)]
    return Launch(launch, [out, x, halves[:, ::-1].copy()])
