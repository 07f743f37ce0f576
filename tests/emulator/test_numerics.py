"""Intrinsics among vector types, and the matrix products of the emulated cuBLAS; tests/conformance has all numbers."""

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
