"""What kernels do on the emulated GPU: threads, warps, shared memory, atomics, limits and errors."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from grader.framing import receive_frame
from tests.emulator.device_client import CompileFailed, DeviceClient, DeviceFailed, start_device

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


def error_of(device: DeviceClient, source: str, name: str, *arguments: Any, **launch: Any) -> dict[str, Any]:
    with pytest.raises(DeviceFailed) as caught:
        device.compile(source)(name, *arguments, **launch)
    return caught.value.error


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


def test_cooperative_groups(device: DeviceClient) -> None:
    kernels = device.compile("""
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void tiles(int* out) {
        const auto block = cg::this_thread_block();
        const auto tile = cg::tiled_partition<8>(block);
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
        device.control("set_mode", counted=counted)
        kernels("look_up", out, block=(4,))
        assert out.tolist() == [5] * 4
    device.control("set_mode", counted=False)
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
    assert own_device.control("statistics")["peak"] == capacity - 1000


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


COPY = 'extern "C" __global__ void __launch_bounds__(128) copy(float* out, int n) { if (n == 1) *out = blockDim.x; }'


@pytest.mark.parametrize(
    "launch",
    [
        {"block": (2048,)},
        {"block": (129,)},
        {"block": (1, 1, 65)},
        {"block": (0,)},
        {"grid": (1, 70000)},
        {"grid": (0,)},
        {"shared": 99 * 1024 + 1},
        {"shared": -1},
    ],
    ids=str,
)
def test_launches_beyond_the_limits_are_refused(device: DeviceClient, launch: dict[str, object]) -> None:
    out = device.empty(1)
    error = error_of(device, COPY, "copy", out, 1, **launch)
    assert (error["code"], error["text"]) == (1, "invalid argument")
    assert np.isnan(out[0])
    device.compile(COPY)("copy", out, 1, block=(128,), shared=99 * 1024)  # refusals do not last
    assert out[0] == 128


def test_too_few_argument_bytes_are_refused(device: DeviceClient) -> None:
    module = device.compile(COPY).answer["module"]
    device.launch(module, "copy", b"\0" * 8, (1,), (1,))
    with pytest.raises(DeviceFailed, match="8 bytes of arguments, copy takes 12"):
        device.sync()


FAULTS = {
    "assert": ("assert(threadIdx.x != 3);", 710, "device-side assert triggered", "assertion `threadIdx.x != 3` failed"),
    "trap": ("if (threadIdx.x == 3) __trap();", 719, "unspecified launch failure", "__trap() in line 2"),
    "null": ("if (threadIdx.x == 3) *(float*)nullptr = 1;", 700, "an illegal memory access was encountered", "address"),
    "wild": (
        "if (threadIdx.x == 3) out[1 << 30] = 1;",
        700,
        "an illegal memory access was encountered",
        "past the end",
    ),
    "misaligned": (
        "if (threadIdx.x == 3) *(float4*)(out + 1) = make_float4(1, 2, 3, 4);",
        716,
        "misaligned address",
        "multiple of the vector's size",
    ),
    "division": ("out[0] = 7 / (3 - (int)threadIdx.x);", 719, "unspecified launch failure", "division by zero"),
    "recursion": ("out[0] = deep(threadIdx.x);", 719, "unspecified launch failure", "recursion too deep"),
    "deadlock": (
        "if (threadIdx.x < 8) __syncthreads();\n else __syncwarp();",
        719,
        "unspecified launch failure",
        "8 wait at __syncthreads in line 2, the first is thread (0,0,0); 24 wait at __syncwarp in line 3, the first is",
    ),
    "mask": ("if (threadIdx.x == 3) __syncwarp(1);", 719, "unspecified launch failure", "does not name the lane"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_errors_end_the_launch_and_last(own_device: DeviceClient, name: str) -> None:
    statement, code, text, detail = FAULTS[name]
    deep = "__device__ int deep(int n) { volatile char row[4096]; row[n] = n; return deep(n + 1) + row[n]; }"
    source = f"""{deep} extern "C" __global__ void fail(float* out) {{
        {statement}
        out[5] = 1;
    }}"""
    error = error_of(own_device, source, "fail", own_device.empty(1000))
    assert (error["code"], error["text"]) == (code, text)
    assert "kernel fail, block (0,0,0)" in str(error["detail"])
    assert detail in str(error["detail"])
    if name not in ("deadlock", "recursion"):
        assert "thread (3,0,0)" in str(error["detail"])
    assert own_device.ask("sync")["error"] == error


def test_a_crash_in_a_library_function_is_told_to_the_parent(own_device: DeviceClient) -> None:
    kernels = own_device.compile("""
    extern "C" __global__ void crash(float* out, int n) { memset(out + (1l << 30), 0, n); }""")
    with pytest.raises((EOFError, BrokenPipeError)):
        kernels("crash", own_device.empty(1), 100000)
    crash = receive_frame(own_device.control_socket, 4096, 0)[0]["crash"]
    assert crash.startswith("kernel crash: access outside of all allocations (address 0x")


def test_empty_mode_runs_nothing(device: DeviceClient) -> None:
    kernels = device.compile(COPY)
    out = device.empty(1)
    device.control("set_mode", empty=True)
    kernels("copy", out, 1)
    device.control("set_mode", empty=False)
    assert np.isnan(out[0])


def test_printf_and_events(device: DeviceClient) -> None:
    kernels = device.compile('extern "C" __global__ void hello() { printf("thread %d\\n", threadIdx.x); }')
    device.send("record", event=1)
    kernels("hello", block=(2,))
    device.send("record", event=2)
    assert device.ask("event", event=2)["nanoseconds"] > device.ask("event", event=1)["nanoseconds"]
    assert device.ask("event", event=3)["nanoseconds"] is None


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


def test_static_shared_memory_beyond_48_kb_does_not_compile(device: DeviceClient) -> None:
    with pytest.raises(CompileFailed, match="uses too much shared data"):
        device.compile("""extern "C" __global__ void f(float* out) {
            __shared__ float rows[12289];
            rows[threadIdx.x] = 1;
            __syncthreads();
            *out = rows[5];
        }""")
