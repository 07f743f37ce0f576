"""The numbers that kernels and the emulated cuBLAS compute: 16-bit types, intrinsics, matrix products."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.device_client import DeviceClient, DeviceFailed, start_device

BF16 = ml_dtypes.bfloat16


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceClient]:
    with start_device() as client:
        yield client


def test_bf16_and_half_conversions_of_every_pattern(device: DeviceClient) -> None:
    kernels = device.compile("""
    #include <cuda_bf16.h>
    #include <cuda_fp16.h>
    extern "C" __global__ void widen(float* brains, float* halves, const unsigned short* bits) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        brains[i] = __bfloat162float(__ushort_as_bfloat16(bits[i]));
        halves[i] = __half2float(__ushort_as_half(bits[i]));
    }
    extern "C" __global__ void narrow(__nv_bfloat16* brains, __half* halves, const float* values) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        brains[i] = __float2bfloat16(values[i]);
        halves[i] = __float2half(values[i]);
    }""")
    bits = device.array(np.arange(65536, dtype=np.uint16))
    brains, halves = device.empty(65536), device.empty(65536)
    kernels("widen", brains, halves, bits, grid=(256,), block=(256,))
    np.testing.assert_array_equal(brains, bits.view(BF16).astype(np.float32))
    np.testing.assert_array_equal(halves, bits.view(np.float16).astype(np.float32))

    # Every exponent with the mantissas around each tie, and float16's range finely.
    rng = np.random.default_rng(2)
    exponents = np.repeat(np.arange(512, dtype=np.uint32) << 23, 512)
    mantissas = np.tile(np.concatenate([np.arange(256) * 0x8000 + e for e in (0, 1)]), 512).astype(np.uint32)
    fine = rng.uniform(-70000, 70000, 65536).astype(np.float32)
    tiny = rng.uniform(-1e-4, 1e-4, 65536).astype(np.float32)
    values = device.array(np.concatenate([(exponents | mantissas).view(np.float32), fine, tiny]))
    narrow_brains, narrow_halves = device.empty(values.shape, BF16), device.empty(values.shape, np.float16)
    kernels("narrow", narrow_brains, narrow_halves, values, grid=(values.size // 256,), block=(256,))
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(narrow_brains.astype(np.float32), values.astype(BF16).astype(np.float32))
        np.testing.assert_array_equal(narrow_halves.astype(np.float32), values.astype(np.float16).astype(np.float32))


def test_bf16_arithmetic_rounds_once(device: DeviceClient) -> None:
    kernels = device.compile("""
    #include <cuda_bf16.h>
    extern "C" __global__ void compute(__nv_bfloat16* out, const __nv_bfloat16* a, const __nv_bfloat16* b, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        out[i] = a[i] + b[i];
        out[n + i] = __hmul(a[i], b[i]);
        out[2 * n + i] = __hfma(a[i], b[i], a[i]);
        const __nv_bfloat162 pair = __hadd2(__halves2bfloat162(a[i], b[i]), __float2bfloat162_rn(1.0f));
        out[3 * n + i] = __low2bfloat16(pair);
        out[4 * n + i] = -__bfloat1622float2(pair).y;
    }""")
    a, b = (device.array(np.random.default_rng(s).normal(size=4096).astype(BF16)) for s in (3, 4))
    out = device.empty((5, 4096), BF16)
    kernels("compute", out, a, b, 4096, grid=(16,), block=(256,))
    x, y = a.astype(np.float64), b.astype(np.float64)
    wanted = [x + y, x * y, x * y + x, x + 1, -(y + 1).astype(BF16).astype(np.float64)]
    # Sums of two bf16 numbers are exact in float64, so that each is rounded once.
    np.testing.assert_array_equal(out.astype(np.float64), np.array(wanted).astype(BF16).astype(np.float64))


def test_intrinsics_and_vector_types(device: DeviceClient) -> None:
    kernels = device.compile("""
    extern "C" __global__ void compute(float* out, const float4* x, int n) {
        const float4 v = __ldg(&x[0]);
        const int2 pair = make_int2(3, -5);
        float sine, cosine;
        sincosf(v.x, &sine, &cosine);
        const float results[] = {
            rsqrtf(v.y), __expf(v.x), __fdividef(v.y, v.z), fmaf(v.x, v.y, v.z), __int_as_float(0x40490fdb),
            (float)min(pair.x, pair.y), max(1.5f, v.x), (float)__popc(0xff01), (float)__clz(1), (float)__ffs(8),
            __saturatef(v.w), sine, cosine, (float)__float2int_rn(2.5f), (float)__brev(1u), -INFINITY,
            (float)max(n, 3u)};
        for (int i = 0; i < 17; i++) __stcs(&out[i], results[i]);
        *reinterpret_cast<float2*>(out + 18) = make_float2(v.w, (float)warpSize);
        out[20] = dim3(4, 5).y + dim3(4).z;
    }""")
    x = device.array(np.array([[0.5, 4, 8, 7]], np.float32))
    out = device.empty(21)
    kernels("compute", out, x, 9, block=(1,))
    wanted = [0.5, np.exp(0.5), 0.5, 10, np.pi, -5, 1.5, 9, 31, 4, 1, np.sin(0.5), np.cos(0.5), 2, 2.0**31, -np.inf, 9]
    np.testing.assert_allclose(out[:17], np.array(wanted, np.float32), rtol=1e-6)
    assert out[18:].tolist() == [7, 32, 6]


def gemm(device: DeviceClient, m: int, n: int, k: int, transposed: tuple[bool, bool], dtype: type, beta: float) -> None:
    rng = np.random.default_rng(m * n * k)
    a, b = (device.array(rng.normal(size=shape).astype(BF16)) for shape in ((k, m), (n, k)))  # row-major op(A)ᵀ, op(B)ᵀ
    stored_a = device.array(a.T.copy()) if transposed[0] else a
    stored_b = device.array(b.T.copy()) if transposed[1] else b
    c = device.array(rng.normal(size=(n, m)).astype(dtype)) if beta else device.empty((n, m), dtype)
    wanted = 0.5 * b.astype(np.float64) @ a.astype(np.float64) + (beta * c.astype(np.float64) if beta else 0)
    device.send(
        "gemm", trans_a=transposed[0], trans_b=transposed[1], m=m, n=n, k=k, alpha=0.5, beta=beta,
        a=device.pointers[id(stored_a)], lda=max(k, 1) if transposed[0] else m,
        b=device.pointers[id(stored_b)], ldb=n if transposed[1] else max(k, 1),
        c=device.pointers[id(c)], ldc=m, c_type="f32" if dtype is np.float32 else "bf16",
    )  # fmt: skip
    device.sync()
    terms = np.abs(b.astype(np.float64)) @ np.abs(a.astype(np.float64)) + 1
    rounding = np.abs(wanted) * (2.0**-8 if dtype is not np.float32 else 0)
    assert (np.abs(c.astype(np.float64) - wanted) <= rounding + 2.0**-18 * terms).all()


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("size", [(1, 1, 1), (33, 1, 100), (50, 5, 17), (70, 16, 300), (200, 100, 520), (7, 40, 0)])
def test_gemm(device: DeviceClient, size: tuple[int, int, int], transposed: tuple[bool, bool]) -> None:
    for dtype in (np.float32, BF16):
        for beta in (0.0, 2.0):
            gemm(device, *size, transposed, dtype, beta)


def test_gemm_refuses_wrong_leading_dimensions_and_sizes(device: DeviceClient) -> None:
    a, b, c = (device.empty((8, 8), BF16) for _ in range(3))
    fields: dict[str, Any] = {
        "trans_a": True,
        "trans_b": False,
        "m": 8,
        "n": 8,
        "k": 8,
        "alpha": 1.0,
        "beta": 0.0,
        "c_type": "bf16",
    }
    fields |= {name: device.pointers[id(array)] for name, array in zip("abc", (a, b, c), strict=True)}
    fields |= {"lda": 8, "ldb": 8, "ldc": 8}
    device.send("gemm", **fields)
    device.sync()
    for change, detail in (({"lda": 7}, "lda is 7"), ({"ldb": 9}, "b as described"), ({"c_type": "f32"}, "c as desc")):
        device.send("gemm", **{**fields, **change})
        with pytest.raises(DeviceFailed, match=detail) as caught:
            device.sync()
        assert caught.value.error["name"] == "CUBLAS_STATUS_INVALID_VALUE"
