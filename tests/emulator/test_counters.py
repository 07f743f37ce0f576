"""What counted launches count: requests, sectors, bytes per argument, barriers, shuffles."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from grader.observe.counters import Counters, Profile, Site
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


def profile(device: DeviceClient, source: str, name: str, *arguments: Any, **launch: Any) -> Profile:
    device.control("observe", counted=True, profiled=True)
    try:
        device.compile(source)(name, *arguments, **launch)
        (fields,) = device.control("observed")["profiles"]
    finally:
        device.control("observe", counted=False)
    return Profile.of_report(fields)


def sites(profile: Profile) -> dict[tuple[int, str, str], Site]:
    """By line, kind and memory; each has one instruction in these tests."""
    found = {(site.line, site.kind, site.space): site for site in profile.sites}
    assert len(found) == len(profile.sites)
    return found


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


# By instruction

SHARED = """
    extern "C" __global__ void f(float* out, int stride) {
        __shared__ float tile[32 * 33];
        tile[threadIdx.x] = 0;
        out[threadIdx.x] = tile[threadIdx.x * stride];
    }
    template <class T> __device__ void copy(T* out, int stride) {
        extern __shared__ float4 dynamic[];
        T* tile = reinterpret_cast<T*>(dynamic);
        out[threadIdx.x] = tile[threadIdx.x * stride];
    }
    extern "C" __global__ void of_float2(float2* out, int stride) { copy(out, stride); }
    extern "C" __global__ void of_float4(float4* out, int stride) { copy(out, stride); }"""


@pytest.mark.parametrize(
    ("stride", "conflicts"), [(0, 0), (1, 0), (2, 1), (4, 3), (8, 7), (16, 15), (32, 31), (33, 0), (31, 0)]
)
def test_bank_conflicts_of_columns(device: DeviceClient, stride: int, conflicts: int) -> None:
    """A 32 x 32 tile read by columns is served 31 times more than needed, as on a GPU; padded to 33 it is not."""
    found = sites(profile(device, SHARED, "f", device.empty(32), stride))
    load, store = found[5, "load", "shared"], found[4, "store", "shared"]
    assert (load.requests, load.bytes, load.cost - load.ideal) == (1, 128, conflicts)
    assert (store.cost, store.ideal) == (1, 1)
    assert load.worst is not None
    assert (load.worst.array, list(load.worst.offsets[:3])) == ("tile", [0, 4 * stride, 8 * stride])


@pytest.mark.parametrize(
    ("name", "size", "stride", "passes", "ideal"),
    [
        ("of_float2", 2, 1, 2, 2),  # halves of a warp one after the other
        ("of_float2", 2, 2, 4, 2),
        ("of_float4", 4, 1, 4, 4),  # and quarters
        ("of_float4", 4, 2, 8, 4),
        ("of_float4", 4, 8, 32, 4),
    ],
)
def test_vectors_are_served_in_parts_of_a_warp(
    device: DeviceClient, name: str, size: int, stride: int, passes: int, ideal: int
) -> None:
    out = device.empty((32, size))
    found = sites(profile(device, SHARED, name, out, stride, shared=16 * 32 * 8))
    load = found[10, "load", "shared"]
    assert (load.cost, load.ideal, load.lanes) == (passes, ideal, 32)


def test_lines_are_those_of_the_source(device: DeviceClient) -> None:
    source = """
    __device__ float half_of(const float* x) {
        return *x / 2;
    }
    template <int N> __device__ float sum(float v, float* partial) {
        partial[threadIdx.x] = v;
        __syncthreads();
        float s = 0;
        for (int i = 0; i < N; i++)
            s += partial[i];
        return s;
    }
    extern "C" __global__ void f(float* out, const float* x, int* n) {
        __shared__ float partial[64];
        const float s = sum<64>(half_of(x + threadIdx.x),
                                partial);
        if (threadIdx.x % 2 == 0)
            atomicAdd(n, 1);
        out[threadIdx.x] = s + __shfl_xor_sync(0xffffffffu, s, 1);
    }"""
    out, x, n = device.empty(64), device.array(np.ones(64, np.float32)), device.array(np.zeros(1, np.int32))
    found = sites(profile(device, source, "f", out, x, n, block=(64,)))
    assert {key: site.requests for key, site in found.items()} == {
        (3, "load", "global"): 2,
        (6, "store", "shared"): 2,
        (7, "barrier", ""): 2,
        (10, "load", "shared"): 128,
        (18, "atomic", "global"): 2,
        (19, "store", "global"): 2,
        (19, "shuffle", ""): 2,
    }
    atomic, loop = found[18, "atomic", "global"], found[10, "load", "shared"]
    assert (atomic.lanes, atomic.addresses, atomic.divergent, atomic.cost) == (32, 2, 2, 2)
    assert (loop.lanes, loop.cost, loop.ideal, loop.divergent) == (64 * 64, 128, 128, 0)
    assert (out == 64).all()
    assert n[0] == 32


def test_the_worst_request_is_kept(device: DeviceClient) -> None:
    source = """
    extern "C" __global__ void f(float* out, const float* x) {
        float s = 0;
        for (int stride = 1; stride <= 4; stride++) s += x[threadIdx.x * stride + 3];
        out[threadIdx.x + blockIdx.x * blockDim.x] = s;
    }"""
    out, x = device.empty(96), device.array(np.zeros(200, np.float32))
    found = profile(device, source, "f", out, x, grid=(2,), block=(48,))
    assert (found.kernel, found.grid, found.block, found.lost) == ("f", (2, 1, 1), (48, 1, 1), 0)
    worst = sites(found)[4, "load", "global"].worst
    assert worst is not None
    assert (worst.array, worst.element, worst.bytes, worst.warp, worst.cost, worst.ideal) == ("x", 4, 4, 0, 16, 4)
    assert list(worst.offsets) == [16 * lane + 12 for lane in range(32)]
    assert worst.origin % 32 == 0


@pytest.mark.parametrize("order", [0, 1, 7])
def test_counts_do_not_depend_on_the_order_of_threads(device: DeviceClient, order: int) -> None:
    """Nor on how long a lane runs: here up to 30,000 accesses between two meetings, each lane a different number."""
    source = """
    extern "C" __global__ void f(float* out, const float* x) {
        float s = 0;
        for (int i = 0; i < 10000; i++) {
            s += x[i + threadIdx.x];
            if (threadIdx.x & 1) s += x[2 * i] + x[3 * i];
        }
        out[threadIdx.x] = s;
    }"""
    out, x = device.empty(32), device.array(np.zeros(30_000, np.float32))
    device.control("set_mode", order_seed=order)
    try:
        found = profile(device, source, "f", out, x)
    finally:
        device.control("set_mode", order_seed=0)
    loads = [site for site in found.sites if site.kind == "load"]
    assert sorted((site.requests, site.lanes) for site in loads) == [(10_000, 160_000)] * 2 + [(10_000, 320_000)]
    whole = next(site for site in loads if site.lanes == 320_000)
    assert whole.cost == sum((i + 31) // 8 - i // 8 + 1 for i in range(10_000))
    assert sum(site.cost for site in loads) == whole.cost + 20_000


def test_two_million_accesses_of_a_lane_are_exact(device: DeviceClient) -> None:
    source = """
    extern "C" __global__ void f(float* out, const float* x, int n) {
        float s = 0;
        for (int i = 0; i < n; i++) s += x[2 * (i & 1023) + threadIdx.x];
        out[threadIdx.x] = s;
    }"""
    out, x = device.empty(2), device.array(np.ones(2048, np.float32))
    counters = count(device, source, "f", out, x, 1 << 21, block=(2,))
    assert counters.load_sectors == counters.ideal_load_sectors == 1 << 21
    assert (counters.max_thread_accesses, counters.load_bytes) == ((1 << 21) + 1, 1 << 24)


def test_lanes_that_part_for_good_are_counted_in_bounded_memory(device: DeviceClient) -> None:
    source = """
    extern "C" __global__ void f(float* out, const float* x, int n) {
        float s = 0;
        if (threadIdx.x == 0)
            for (int i = 0; i < n; i++) s += x[i & 7];
        else
            for (int i = 0; i < n; i++) s += x[i & 7] * x[8 + (i & 7)];
        out[threadIdx.x] = s;
    }"""
    out, x = device.empty(32), device.array(np.ones(16, np.float32))
    found = sites_of_lines(profile(device, source, "f", out, x, 50_000))
    assert found[5] == (50_000, 50_000)
    assert found[7] == (100_000, 31 * 100_000)


def sites_of_lines(profile: Profile) -> dict[int, tuple[int, int]]:
    """Requests and lanes of each line."""
    lines = {site.line for site in profile.sites}
    at = {line: [site for site in profile.sites if site.line == line] for line in lines}
    return {line: (sum(s.requests for s in of), sum(s.lanes for s in of)) for line, of in at.items()}


def test_launches_are_profiled_only_when_asked(device: DeviceClient) -> None:
    device.control("observe", counted=True)
    device.compile(STRIDED)("copy", device.empty(32), device.array(np.zeros(32, np.float32)), 1, 0)
    assert device.control("observed")["profiles"] == []
    device.control("observe", counted=False)


def test_the_launch_of_a_kernel_that_moves_the_most_is_profiled(device: DeviceClient) -> None:
    kernels = device.compile(STRIDED)
    out, x = device.empty(64), device.array(np.zeros(64 * 2, np.float32))
    device.control("observe", counted=True, profiled=True)
    for grid, stride in ((1, 1), (2, 2), (2, 1)):
        kernels("copy", out, x, stride, 0, grid=(grid,))
    report = device.control("observed")
    device.control("observe", counted=False)
    assert len(report["kernel_counts"]) == 3
    (found,) = map(Profile.of_report, report["profiles"])
    assert {site.kind: site.cost for site in found.sites} == {"load": 16, "store": 8}
