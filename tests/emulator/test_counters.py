"""What counted launches count: requests, sectors, bytes per argument, barriers, shuffles."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from grader.counters import Counters
from tests.emulator.device_client import DeviceClient, start_device

STRIDED = """
    extern "C" __global__ void copy(float* out, const float* x, int stride, int offset) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        out[i] = x[i * stride + offset];
    }
    extern "C" __global__ void copy_vectors(float4* out, const float4* x) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        const float4 v = x[i];
        out[i] = make_float4(v.x, v.y + 1, v.z, v.w);
    }"""

CALLS = """
    struct Three { float a, b, c; };
    __device__ float sum(uint4 v) { return v.x + v.y + v.z + v.w; }
    __device__ __noinline__ float apart(Three v) { return v.a + v.b + v.c; }
    __device__ __attribute__((noinline)) uint4 made(unsigned i) { return make_uint4(i, i, i, i); }
    extern "C" __global__ void sums(float* out, const uint4* x) { out[threadIdx.x] = sum(x[threadIdx.x]); }
    extern "C" __global__ void apart_sums(float* out, const Three* x) { out[threadIdx.x] = apart(x[threadIdx.x]); }
    extern "C" __global__ void fill(uint4* out, const uint4* x) { out[threadIdx.x] = made(threadIdx.x); }"""


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceClient]:
    with start_device() as client:
        yield client


def count(device: DeviceClient, source: str, name: str, *arguments: Any, **launch: Any) -> Counters:
    device.control("observe", counted=True)
    try:
        device.compile(source)(name, *arguments, **launch)
        ((_, fields),) = device.control("observed")["kernel_counts"]
    finally:
        device.control("observe", counted=False)
    return Counters(**fields)


@pytest.mark.parametrize(
    ("stride", "offset", "sectors"), [(1, 0, 4), (2, 0, 8), (4, 0, 16), (8, 0, 32), (32, 0, 32), (1, 1, 5), (1, 8, 4)]
)
def test_sectors_of_strided_loads(device: DeviceClient, stride: int, offset: int, sectors: int) -> None:
    out, x = device.empty(128), device.array(np.zeros(128 * 32 + 8, np.float32))
    counters = count(device, STRIDED, "copy", out, x, stride, offset, grid=(2,), block=(64,))
    assert (counters.threads, counters.blocks) == (128, 2)
    assert counters.load_sectors == 4 * sectors
    assert (counters.ideal_load_sectors, counters.store_sectors, counters.ideal_store_sectors) == (16, 16, 16)
    assert (counters.load_bytes, counters.store_bytes, counters.accesses) == (512, 512, 256)
    assert counters.max_thread_accesses == 2
    assert [tuple(counters.of(argument)) for argument in (0, 1)] == [(0, 512), (512, 0)]


@pytest.mark.parametrize(("name", "loaded", "stored"), [("sums", 16, 4), ("apart_sums", 12, 4), ("fill", 0, 16)])
def test_arguments_and_results_of_calls_count(device: DeviceClient, name: str, loaded: int, stored: int) -> None:
    out, x = device.empty(128), device.array(np.zeros(128, np.float32))
    counters = count(device, CALLS, name, out, x)
    assert (counters.load_bytes, counters.store_bytes) == (32 * loaded, 32 * stored)


def test_a_vector_is_one_access(device: DeviceClient) -> None:
    out, x = device.empty((32, 4)), device.array(np.zeros((32, 4), np.float32))
    counters = count(device, STRIDED, "copy_vectors", out, x)
    assert (counters.accesses, counters.load_bytes, counters.store_bytes) == (64, 512, 512)
    assert (counters.load_sectors, counters.store_sectors, counters.ideal_load_sectors) == (16, 16, 16)


def test_loops_line_up_by_iteration(device: DeviceClient) -> None:
    source = """
    extern "C" __global__ void sum(float* out, const float* x, int n) {
        float sum = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
        out[threadIdx.x] = sum;
    }"""
    out, x = device.empty(64), device.array(np.ones(1000, np.float32))
    counters = count(device, source, "sum", out, x, 1000, block=(64,))
    assert (counters.load_sectors, counters.ideal_load_sectors) == (125, 125)
    assert counters.max_thread_accesses == 17
    assert out.sum() == 1000


def test_lanes_that_read_one_address_need_one_sector(device: DeviceClient) -> None:
    source = 'extern "C" __global__ void f(float* out, const float* x) { out[threadIdx.x] = x[0]; }'
    counters = count(device, source, "f", device.empty(32), device.array(np.ones(1, np.float32)))
    assert (counters.load_bytes, counters.load_sectors, counters.ideal_load_sectors) == (128, 1, 1)


def test_shared_memory_and_locals_are_not_counted(device: DeviceClient) -> None:
    source = """
    extern "C" __global__ void f(float* out, int n) {
        __shared__ float row[64];
        extern __shared__ float dynamic[];
        float local[8];
        for (int i = 0; i < 8; i++) local[(i * n) % 8] = i;
        row[threadIdx.x] = dynamic[threadIdx.x] = local[n % 8];
        __syncthreads();
        out[threadIdx.x] = row[63 - threadIdx.x] + __shfl_xor_sync(0xffffffffu, dynamic[threadIdx.x], 1);
        __syncthreads();
    }"""
    counters = count(device, source, "f", device.empty(64), 3, block=(64,), shared=256)
    assert (counters.accesses, counters.load_bytes, counters.store_bytes) == (64, 0, 256)
    assert (counters.barriers, counters.shuffles) == (2, 2)


def test_read_modify_write_and_atomics_count_both_ways(device: DeviceClient) -> None:
    source = """
    extern "C" __global__ void f(float* x, int* n) {
        x[threadIdx.x] += 1;
        atomicAdd(n, 1);
    }"""
    x, n = device.array(np.zeros(32, np.float32)), device.array(np.zeros(1, np.int32))
    counters = count(device, source, "f", x, n)
    assert [tuple(counters.of(argument)) for argument in (0, 1)] == [(128, 128), (128, 128)]
    assert (n[0], x.sum()) == (32, 32)


def test_bf16_counts_two_bytes(device: DeviceClient) -> None:
    source = """
    #include <cuda_bf16.h>
    extern "C" __global__ void f(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat162* pairs) {
        const float2 pair = __bfloat1622float2(pairs[threadIdx.x]);
        out[threadIdx.x] = __float2bfloat16(__bfloat162float(x[threadIdx.x]) + pair.x + pair.y);
    }"""
    x, pairs, out = (device.array(np.ones(n, ml_dtypes.bfloat16)) for n in (32, 64, 32))
    counters = count(device, source, "f", out, x, pairs)
    assert [tuple(counters.of(argument)) for argument in range(3)] == [(0, 64), (64, 0), (128, 0)]
    assert (counters.accesses, counters.load_sectors, counters.store_sectors) == (96, 6, 2)
    assert (out == 3).all()


@pytest.mark.parametrize("size", ["4", "n * 4"])
def test_copies_are_counted(device: DeviceClient, size: str) -> None:
    source = f"""extern "C" __global__ void f(float* out, const float* x, int n) {{
        float v[8];
        memcpy(v, x + threadIdx.x * n, {size});
        memcpy(out + threadIdx.x * n, v, {size});
    }}"""
    counters = count(device, source, "f", device.empty(32), device.array(np.zeros(32, np.float32)), 1)
    assert (counters.load_bytes, counters.store_bytes) == (128, 128)


def test_launches_are_counted_only_when_asked(device: DeviceClient) -> None:
    device.control("observe", counted=False)
    device.compile(STRIDED)("copy", device.empty(32), device.array(np.zeros(32, np.float32)), 1, 0)
    report = device.control("observed")
    assert report["kernel_counts"] == []
    assert report["launches"] == {"copy": 1}
