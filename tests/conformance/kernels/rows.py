"""Cases of rows.cu."""

import ml_dtypes
import numpy as np

from tests.conformance.table import Launch, Table, blank

table = Table("rows.cu")
BF16 = ml_dtypes.bfloat16


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def exact(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


@table.case(grid=2, block=64)
def encoder_forward(rng: np.random.Generator) -> Launch:
    inp = rng.integers(0, 20, (2, 5), dtype=np.int32)
    wte, wpe = floats(rng, 20, 64).astype(BF16), floats(rng, 5, 64).astype(BF16)
    out = (wte[inp].astype(np.float32) + wpe.astype(np.float32)).astype(BF16)
    return Launch([blank(out.shape, BF16), inp, wte, wpe, np.int32(2), np.int32(5), np.int32(64)], [out])


def normed(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    deviation = np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return (x - x.mean(1, keepdims=True)) / deviation * weight + bias


@table.case(grid=3, block=128, ulps=16)
def layernorm_forward(rng: np.random.Generator) -> Launch:
    x, weight, bias = floats(rng, 10, 100), floats(rng, 100), floats(rng, 100)
    wide = exact(x)
    results = [normed(wide, exact(weight), exact(bias)), wide.mean(1), 1 / np.sqrt(wide.var(1) + 1e-5)]
    outputs = [blank(values.shape, np.float32) for values in results]
    arguments = [*outputs, x, weight, bias, np.int32(10), np.int32(100)]
    return Launch(arguments, [values.astype(np.float32) for values in results])


@table.case(grid=2, block=(32, 4), shared=6 * 256 * 2, ulps=1)
def fused_residual_forward(rng: np.random.Generator) -> Launch:
    a, b = (floats(rng, 7, 256).astype(BF16) for _ in range(2))
    weight, bias = (floats(rng, 256).astype(BF16) for _ in range(2))
    residual = (a.astype(np.float32) + b.astype(np.float32)).astype(BF16)
    out = normed(exact(residual), exact(weight), exact(bias)).astype(BF16)
    arguments = [blank((7, 256), BF16), blank((7, 256), BF16), a, b, weight, bias, np.int32(7), np.int32(256)]
    return Launch(arguments, [residual, out])


def adamw(old: np.ndarray, gradient: np.ndarray, m: np.ndarray, v: np.ndarray, rate: float, decay: float) -> list:
    """New parameters and moments, in float64."""
    old, gradient, m, v = map(exact, (old, gradient, m, v))
    m, v = 0.9 * m + 0.1 * gradient, np.float32(0.95) * v + (1 - np.float32(0.95)) * gradient**2
    return [old - rate * (m / 0.1 / (np.sqrt(v / 0.05) + 1e-8) + decay * old), m, v]


def noise(position: np.ndarray, seed: int) -> np.ndarray:
    mangled = position.astype(np.uint32) * np.uint32(0xB5297A4D) + np.uint32(seed)
    mangled ^= mangled >> 8
    mangled += np.uint32(0x68E31DA4)
    mangled ^= mangled << 8
    mangled *= np.uint32(0x1B56C4E9)
    return mangled ^ mangled >> 8


@table.case(grid=2, block=128, ulps=32)
def adamw_float(rng: np.random.Generator) -> Launch:
    old, gradient, m, v = (floats(rng, 200) for _ in range(4))
    new = adamw(old, gradient, m, v := v * v, 1e-2, 0)
    expected = [values.astype(np.float32) for values in new]
    return Launch([old, gradient, m, v, np.uint64(200)], [expected[0], gradient, *expected[1:]])


@table.case(grid=2, block=128)
def adamw_bf16(rng: np.random.Generator) -> Launch:
    """With a learning rate of 0, only the rounding at random is left, which is exact."""
    master, gradient, v = floats(rng, 200), np.zeros(200, BF16), np.ones(200, np.float32)
    bits, threshold = master.view(np.uint32), noise(np.arange(200), 1337) & np.uint32(0xFFFF)
    up = (bits & np.uint32(0xFFFF)) > threshold
    rounded = np.where(up, (bits >> 16) + 1, bits >> 16).astype(np.uint16).view(BF16)
    zeros = np.zeros(200, np.float32)
    arguments = [blank(200, BF16), master, gradient, zeros, v, np.uint64(200), np.float32(0), np.uint32(1337)]
    return Launch(arguments, [rounded, master, gradient, zeros, np.full(200, 0.95, np.float32)])


@table.case(grid=6, block=128, ulps=64)
def fused_classifier(rng: np.random.Generator) -> Launch:
    rows, columns, padded = 6, 1001, 1008
    logits = (4 * floats(rng, rows, padded)).astype(BF16)
    targets = rng.integers(0, columns, rows, dtype=np.int32)
    wide = exact(logits[:, :columns])
    weights = np.exp(wide - wide.max(1, keepdims=True))
    probabilities = weights / weights.sum(1, keepdims=True)
    picked = probabilities[np.arange(rows), targets]
    gradients = probabilities.copy()
    gradients[np.arange(rows), targets] -= 1
    out = logits.copy()
    out[:, :columns] = (gradients * 0.25).astype(BF16)
    arguments = [logits, np.zeros(rows, np.float32), np.float32(0.25), targets, np.int32(columns), np.int32(padded)]
    return Launch(arguments, [out, -np.log(picked).astype(np.float32)])


@table.case(grid=3, block=64, ulps=32)
def softmax_online(rng: np.random.Generator) -> Launch:
    x = 5 * floats(rng, 5, 133)
    weights = np.exp(exact(x) - x.max(1, keepdims=True))
    out = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    return Launch([blank(x.shape, np.float32), x, np.int32(5), np.int32(133)], [out])


@table.case(grid=2, block=96, ulps=2)
def rope_pairs(rng: np.random.Generator) -> Launch:
    q, angles = floats(rng, 5, 3, 16), rng.uniform(0, 6, (5, 1, 8))
    freqs = np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32)
    turned = exact(q).view(np.complex128) * exact(freqs).view(np.complex128)[..., 0]
    arguments = [q, freqs, np.int32(5), np.int32(3), np.int32(16)]
    return Launch(arguments, [turned.view(np.float64).astype(np.float32)])


@table.case(grid=1, block=64, ulps=1)
def gelu_forward(rng: np.random.Generator) -> Launch:
    x = (3 * floats(rng, 400)).astype(BF16)
    wide = exact(x)
    out = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    return Launch([blank(400, BF16), x, np.int32(400)], [out.astype(BF16)])
