"""What kernels do on the emulated GPU: threads, warps, shared memory, atomics, limits and errors."""

import os
from collections.abc import Iterator
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.device_client import ARENA_BYTES, DeviceClient, DeviceFailed, start_device

BF16 = ml_dtypes.bfloat16


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceClient]:
    with start_device() as client:
        yield client


@pytest.fixture
def own_device() -> Iterator[DeviceClient]:
    """A device of the test's own, for errors that last."""
    with start_device(capacity=64 << 20) as client:
        yield client


def test_every_thread_of_a_grid_runs_once(device: DeviceClient) -> None:
    kernels = device.compile("""
    extern "C" __global__ void mark(int* out) {
        const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        atomicAdd(&out[block * (blockDim.x * blockDim.y * blockDim.z) + thread], 1);
    }""")
    out = device.array(np.zeros(2 * 3 * 4 * 5 * 3 * 2, np.int32))
    kernels("mark", out, grid=(2, 3, 4), block=(5, 3, 2))
    assert (out == 1).all()


SHUFFLES = """
    template <class T> __device__ void all_kinds(T* out, T value, int width) {
        const int t = threadIdx.x;
        out[t] = __shfl_sync(0xffffffffu, value, 5, width);
        out[32 + t] = __shfl_up_sync(0xffffffffu, value, 3, width);
        out[64 + t] = __shfl_down_sync(0xffffffffu, value, 3, width);
        out[96 + t] = __shfl_xor_sync(0xffffffffu, value, 9, width);
    }
    #include <cuda_bf16.h>
    #include <cuda_fp16.h>
    extern "C" __global__ void ints(int* out, int width) { all_kinds(out, (int)threadIdx.x * 3 - 7, width); }
    extern "C" __global__ void floats(float* out, int width) { all_kinds(out, threadIdx.x * 3 - 7.0f, width); }
    extern "C" __global__ void doubles(double* out, int width) { all_kinds(out, threadIdx.x * 3 - 7.0, width); }
    extern "C" __global__ void longs(long long* out, int width) { all_kinds(out, threadIdx.x * 3ll - 7, width); }
    extern "C" __global__ void brains(__nv_bfloat16* out, int width) {
        all_kinds(out, __float2bfloat16(threadIdx.x * 3 - 7.0f), width);
    }
    extern "C" __global__ void halves(__half* out, int width) {
        all_kinds(out, __float2half(threadIdx.x * 3 - 7.0f), width);
    }
"""


def shuffled(width: int) -> np.ndarray:
    """What the four shuffles of SHUFFLES give."""
    lane = np.arange(32)
    first, values = lane // width * width, lane * 3 - 7
    up, down, xor = lane - 3, lane + 3, lane ^ 9
    sources = [
        first + 5 % width,
        np.where(up < first, lane, up),
        np.where(down >= first + width, lane, down),
        np.where(xor >= first + width, lane, xor),
    ]
    return np.concatenate([values[source] for source in sources])


@pytest.mark.parametrize("width", [2, 8, 16, 32])
def test_shuffles_of_every_type_and_width(device: DeviceClient, width: int) -> None:
    kernels = device.compile(SHUFFLES)
    dtypes = {"ints": np.int32, "floats": np.float32, "doubles": np.float64, "longs": np.int64, "brains": BF16}
    for name, dtype in {**dtypes, "halves": np.float16}.items():
        out = device.empty(128, dtype)
        kernels(name, out, width)
        np.testing.assert_array_equal(out.astype(np.int64), shuffled(width), err_msg=name)


def test_votes_reductions_and_matches(device: DeviceClient) -> None:
    kernels = device.compile("""
    extern "C" __global__ void votes(unsigned* out) {
        const int t = threadIdx.x, value = t - 10;
        const unsigned full = 0xffffffffu;
        unsigned* mine = out + 10 * t;
        mine[0] = __ballot_sync(full, t % 3 == 0);
        mine[1] = __any_sync(full, t == 40);
        mine[2] = __all_sync(full, t < 32);
        mine[3] = __reduce_add_sync(full, value);
        mine[4] = __reduce_min_sync(full, value);
        mine[5] = __reduce_max_sync(full, (unsigned)value);
        mine[6] = __reduce_xor_sync(full, (unsigned)t * 5);
        mine[7] = __match_any_sync(full, t / 8);
        mine[8] = __activemask();
        mine[9] = __syncthreads_count(t < 7) + 100 * __syncthreads_or(t == 3) + 1000 * __syncthreads_and(t != 3);
    }""")
    out = device.empty((32, 10), np.uint32)
    kernels("votes", out)
    lanes = np.arange(32)
    thirds = sum(1 << lane for lane in range(0, 32, 3))
    xor = np.bitwise_xor.reduce(lanes * 5)
    wanted = [thirds, 0, 1, (lanes - 10).sum(), 2**32 - 10, 2**32 - 1, xor]
    np.testing.assert_array_equal(out[:, :7], np.tile(np.array(wanted, np.uint32), (32, 1)))
    np.testing.assert_array_equal(out[:, 7], 0xFF << lanes // 8 * 8)
    assert (out[:, 8] == 0xFFFFFFFF).all()
    assert (out[:, 9] == 107).all()


def test_a_lane_that_is_not_there_gives_nan(device: DeviceClient) -> None:
    kernels = device.compile("""
    extern "C" __global__ void sum(float* out) {
        out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 16);
    }""")
    out = device.empty(20)
    kernels("sum", out, block=(20,))
    assert (out[:4] == 1).all()
    assert np.isnan(out[4:16]).all()


TREE = """
    extern "C" __global__ void row_sums(float* out, const float* x, int columns) {
        extern __shared__ float partial[];
        __shared__ float total;
        float sum = 0;
        for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += x[blockIdx.x * columns + i];
        partial[threadIdx.x] = sum;
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        }
        if (threadIdx.x == 0) total = partial[0];
        __syncthreads();
        out[blockIdx.x * blockDim.x + threadIdx.x] = total;
    }"""


@pytest.mark.parametrize("order_seed", [0, 1, 12345])
@pytest.mark.parametrize("threads", [1, 64, 1024])
def test_barriers_and_shared_memory_in_every_order(device: DeviceClient, threads: int, order_seed: int) -> None:
    device.control("set_mode", order_seed=order_seed)
    kernels = device.compile(TREE)
    x = device.array(np.random.default_rng(1).integers(-9, 9, (37, 500)).astype(np.float32))
    out = device.empty((37, threads))
    kernels("row_sums", out, x, 500, grid=(37,), block=(threads,), shared=4 * threads)
    device.control("set_mode", order_seed=0)
    np.testing.assert_array_equal(out, np.repeat(x.sum(1)[:, None], threads, 1))


def test_shared_memory_that_nobody_wrote_is_nan(device: DeviceClient) -> None:
    kernels = device.compile("""
    extern "C" __global__ void read(float* out) {
        extern __shared__ float dynamic[];
        __shared__ float fixed[8];
        out[0] = dynamic[3];
        out[1] = fixed[2];
        dynamic[3] = fixed[2] = 1;
    }""")
    for _ in range(2):
        out = device.empty(2)
        kernels("read", out, block=(1,), shared=32)
        assert np.isnan(out).all()


def test_threads_that_returned_do_not_hold_up_a_barrier(device: DeviceClient) -> None:
    kernels = device.compile("""
    extern "C" __global__ void early(int* out) {
        if (threadIdx.x >= 40) return;
        out[threadIdx.x] = __syncthreads_count(1) + __reduce_add_sync(0xffffffffu, 1u);
    }""")
    out = device.empty(40, np.int32)
    kernels("early", out, block=(64,))
    np.testing.assert_array_equal(out, [72] * 32 + [48] * 8)


def test_atomics_of_many_blocks(device: DeviceClient) -> None:
    kernels = device.compile("""
    extern "C" __global__ void count(int* i, unsigned* u, float* f, double* d, unsigned long long* l) {
        const int t = blockIdx.x * blockDim.x + threadIdx.x;
        atomicAdd(i, 1);
        atomicSub(i + 1, 1);
        atomicMax(i + 2, t);
        atomicMin(i + 3, -t);
        atomicOr(u, 1u << t % 32);
        atomicXor(u + 1, 3);
        atomicInc(u + 2, 6);
        while (atomicCAS(u + 3, 0, 1) != 0) {}
        u[4] += 1;
        atomicExch(u + 3, 0);
        atomicAdd(f, 0.5f);
        atomicAdd(d, 0.25);
        atomicAdd(l, 1ull << 32);
    }""")
    i, u = device.array(np.zeros(4, np.int32)), device.array(np.zeros(5, np.uint32))
    f, d, x = device.array(np.zeros(1, np.float32)), device.array(np.zeros(1)), device.array(np.zeros(1, np.uint64))
    kernels("count", i, u, f, d, x, grid=(40,), block=(64,))
    assert i.tolist() == [2560, -2560, 2559, -2559]
    assert u.tolist() == [0xFFFFFFFF, 0, 2560 % 7, 0, 2560]
    assert (f[0], d[0], x[0]) == (1280, 640, 2560 << 32)


def test_cooperative_groups(device: DeviceClient) -> None:
    kernels = device.compile("""
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void tiles(int* out) {
        const auto block = cg::this_thread_block();
        const auto tile = cg::tiled_partition<8>(block);
        cg::sync(block);
        out[block.thread_rank()] = cg::reduce(tile, (int)block.thread_rank(), cg::plus<int>()) + tile.shfl(1000, 0);
        block.sync();
    }""")
    out = device.empty(64, np.int32)
    kernels("tiles", out, block=(64,))
    np.testing.assert_array_equal(out, np.arange(64).reshape(8, 8).sum(1).repeat(8) + 1000)


def test_constant_and_device_variables(device: DeviceClient) -> None:
    kernels = device.compile("""
    __constant__ float table[4] = {1, 2, 3, 4};
    __device__ int calls;
    __device__ float half_of(float x) { return x / 2; }
    extern "C" __global__ void look_up(float* out) {
        atomicAdd(&calls, 1);
        out[threadIdx.x] = half_of(table[threadIdx.x]);
    }""")
    (table, bytes), (calls, _) = kernels.answer["constants"]["table"], kernels.answer["constants"]["calls"]
    assert bytes == 16
    out = device.empty(4)
    kernels("look_up", out, block=(4,))
    assert out.tolist() == [0.5, 1, 1.5, 2]
    device.view(table, 4, np.float32)[:] = 10
    for counted in (False, True):
        device.control("observe", counted=counted)
        kernels("look_up", out, block=(4,))
        assert out.tolist() == [5] * 4
    device.control("observe", counted=False)
    assert device.view(calls, 1, np.int32)[0] == 12


def test_memory_is_poisoned_before_and_after_its_life(own_device: DeviceClient) -> None:
    array = own_device.empty(1000)
    assert np.isnan(array).all()
    array[:] = 1
    own_device.send("free", ptr=own_device.pointers[id(array)])
    own_device.sync()
    assert np.isnan(array).all()
    assert own_device.pointers[id(own_device.empty(1000))] != own_device.pointers[id(array)]


def test_allocations_and_capacity(own_device: DeviceClient) -> None:
    capacity = own_device.ask("memory")["total"]
    pointer = own_device.ask("alloc", bytes=capacity - 1000)["ptr"]
    assert pointer % 256 == 0
    error = own_device.ask("alloc", bytes=2000)["error"]
    assert (error["code"], error["text"]) == (2, "out of memory")
    assert own_device.ask("alloc", bytes=0)["error"]["text"] == "invalid argument"
    for _ in range(3):  # large allocations come and go without using memory up
        own_device.send("free", ptr=pointer)
        pointer = own_device.ask("alloc", bytes=capacity - 1000)["ptr"]
    own_device.send("free", ptr=12345)
    assert own_device.ask("memory")["free"] == 1000
    assert own_device.control("observed")["peak"] == capacity - 1000


def test_addresses_are_used_again_when_all_were_used() -> None:
    with start_device(capacity=20 << 30) as device:
        for _ in range(ARENA_BYTES // (15 << 30) + 2):
            pointer = device.ask("alloc", bytes=15 << 30)["ptr"]
            device.send("free", ptr=pointer)
        sizes = [15 << 30, 1 << 20, 3 << 30, 1000, 1 << 30]  # the larger ones are cut from what was larger
        held = sorted((device.ask("alloc", bytes=size)["ptr"], size) for size in sizes)
        assert all(begin + size <= after for (begin, size), (after, _) in pairwise(held))
        for begin, _ in held:
            device.send("memset", ptr=begin, width=4, value=1, count=200)
        device.sync()


def test_large_zeros_take_no_memory() -> None:
    with start_device(capacity=8 << 30) as device:
        size = 6 << 30
        pointer = device.ask("alloc", bytes=size)["ptr"]
        device.send("memset", ptr=pointer + 5, width=4, value=0, count=size // 4 - 2)
        device.sync()
        found = device.control("first_written", ptr=pointer, bytes=size, **{"except": [[0, 5], [size - 3, size]]})
        assert found == {"offset": None}
        device.view(pointer, 6, np.uint8)[5] = 7
        expected = {0: 0, 1: 1, 5: 5}
        for first, offset in expected.items():
            skipped = {"except": [[0, first], [size - 3, size]]}
            assert device.control("first_written", ptr=pointer, bytes=size, **skipped) == {"offset": offset}
        assert os.fstat(device.memory_file).st_blocks * 512 < 200 << 20


def test_memset_and_copy_stay_inside_allocations(device: DeviceClient) -> None:
    a, b = device.empty(10, np.uint32), device.empty(10, np.uint32)
    pointer = device.pointers[id(a)]
    device.send("memset", ptr=pointer + 4, width=4, value=7, count=9)
    device.send("copy", target=device.pointers[id(b)], source=pointer, bytes=40)
    device.sync()
    assert b.tolist() == [0xFFFFFFFF] + [7] * 9
    device.send("memset", ptr=pointer + 4, width=4, value=7, count=10)
    with pytest.raises(DeviceFailed, match="invalid argument"):
        device.sync()


WIDTH = 'extern "C" __global__ void width(float* out) { *out = blockDim.x; }'


def test_empty_mode_runs_nothing(device: DeviceClient) -> None:
    kernels = device.compile(WIDTH)
    out = device.empty(1)
    device.control("set_mode", empty=True)
    kernels("width", out)
    device.control("set_mode", empty=False)
    assert np.isnan(out[0])


def test_printf_and_events(device: DeviceClient) -> None:
    kernels = device.compile('extern "C" __global__ void hello() { printf("thread %d\\n", threadIdx.x); }')
    device.send("record", event=1)
    kernels("hello", block=(2,))
    device.send("record", event=2)
    assert device.ask("event", event=2)["nanoseconds"] > device.ask("event", event=1)["nanoseconds"]
    assert device.ask("event", event=3)["nanoseconds"] is None
