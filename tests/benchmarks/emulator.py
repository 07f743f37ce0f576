"""How fast the emulator is on this machine: `python -m tests.benchmarks.emulator`.

Every figure stands beside a plain C++ loop that computes the same in the same run, since only ratios mean anything
elsewhere. Kernels run on one core; processor time is measured, the best of several runs counts.
"""

import ctypes
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from grader.emulator.arena import Arena
from grader.emulator.native import Gemm, Launch, LoadedModule, Runtime
from grader.emulator.toolchain import compile_module, compiler

RUNS = 7
ARENA_BYTES = 64 << 30

KERNELS = r"""
#include <cuda_bf16.h>
extern "C" __global__ void rmsnorm_tree(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat16* weight,
                                        int width, float eps) {
    extern __shared__ float partial[];
    float sum = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const float value = __bfloat162float(x[blockIdx.x * width + i]);
        sum += value * value;
    }
    partial[threadIdx.x] = sum;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    __syncthreads();
    const float scale = rsqrtf(partial[0] / width + eps);
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const int at = blockIdx.x * width + i;
        out[at] = __float2bfloat16(__bfloat162float(x[at]) * scale * __bfloat162float(weight[i]));
    }
}
extern "C" __global__ void rmsnorm_warps(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat16* weight,
                                         int width, float eps) {
    __shared__ float sums[32];
    float sum = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const float value = __bfloat162float(x[blockIdx.x * width + i]);
        sum += value * value;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < blockDim.x / 32; w++) total += sums[w];
    const float scale = rsqrtf(total / width + eps);
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const int at = blockIdx.x * width + i;
        out[at] = __float2bfloat16(__bfloat162float(x[at]) * scale * __bfloat162float(weight[i]));
    }
}
extern "C" __global__ void tiled(float* out, const float* a, const float* b, int n) {
    __shared__ float a_tile[16][16], b_tile[16][16];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        a_tile[y][x] = a[row * n + k + x];
        b_tile[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += a_tile[y][i] * b_tile[i][x];
        __syncthreads();
    }
    out[row * n + column] = sum;
}
"""

PLAIN = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
static float widened(uint16_t bits) {
    uint32_t word = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
}
static uint16_t rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
extern "C" void rmsnorm(uint16_t* out, const uint16_t* x, const uint16_t* weight, int rows, int width, float eps) {
    for (int row = 0; row < rows; row++, x += width, out += width) {
        float sum = 0;
        for (int i = 0; i < width; i++) sum += widened(x[i]) * widened(x[i]);
        const float scale = 1 / sqrtf(sum / width + eps);
        for (int i = 0; i < width; i++) out[i] = rounded(widened(x[i]) * scale * widened(weight[i]));
    }
}
extern "C" void product(float* out, const float* a, const float* b, int n) {
    for (int row = 0; row < n; row++) {
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
            out[row * n + column] = sum;
        }
    }
}
extern "C" void row_product(float* out, const uint16_t* weight, const float* x, int rows, int k) {
    for (int row = 0; row < rows; row++) {
        float sum = 0;
        for (int i = 0; i < k; i++) sum += widened(weight[long(row) * k + i]) * x[i];
        out[row] = sum;
    }
}
"""


def main() -> None:
    runtime = Runtime()
    runtime.start(1)
    file = os.memfd_create("device-memory")
    os.ftruncate(file, ARENA_BYTES)
    bench = Bench(runtime, Arena(file, ARENA_BYTES, ARENA_BYTES), plain_loops())
    print(f"{'':34} {'emulator':>12} {'plain loop':>12} {'ratio':>8}")
    bench.rmsnorm(64, 2048)
    bench.tiled_product(256)
    bench.row_products(16384, 2048)
    bench.compiling()


class Bench:
    def __init__(self, runtime: Runtime, arena: Arena, plain: ctypes.CDLL) -> None:
        self.runtime = runtime
        self.arena = arena
        self.plain = plain
        self.module = LoadedModule(compile_module(KERNELS, [], [], instrumented=False))

    def filled(self, count: int, element: bytes) -> int:
        address = self.arena.allocate(count * len(element))
        assert address is not None
        self.arena.fill(address, element, count)
        return address

    def launch(self, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], packed: bytes) -> None:
        launch = Launch.from_buffer_copy(self.module.launches[name])
        launch.arguments, launch.dynamic_shared = packed, 4 * block[0]
        launch.grid[:], launch.block[:] = grid, block
        self.runtime.launch(ctypes.byref(launch))
        assert launch.error == 0, launch.detail

    def rmsnorm(self, rows: int, width: int) -> None:
        one = np.float32(1).tobytes()[2:]
        out, x, weight = self.filled(rows * width, one), self.filled(rows * width, one), self.filled(width, one)
        arguments = [ctypes.c_void_p(p) for p in (out, x, weight)]
        plain = best(lambda: self.plain.rmsnorm(*arguments, rows, width, ctypes.c_float(1e-5)))
        packed = struct.pack("PPPif", out, x, weight, width, 1e-5)
        for name in ("rmsnorm_tree", "rmsnorm_warps"):
            for threads in (256, 1024):
                seconds = best(lambda n=name, t=threads: self.launch(n, (rows, 1, 1), (t, 1, 1), packed))  # type: ignore[misc]
                label = f"{name} {rows} x {width}, {threads} threads"
                row(label, seconds, plain, lambda s: f"{s / rows / width * 1e9:.1f} ns/el.")

    def tiled_product(self, n: int) -> None:
        out, a, b = (self.filled(n * n, np.float32(0.5).tobytes()) for _ in range(3))
        arguments = [ctypes.c_void_p(p) for p in (out, a, b)]
        plain = best(lambda: self.plain.product(*arguments, n))
        packed = struct.pack("PPPi", out, a, b, n)
        seconds = best(lambda: self.launch("tiled", (n // 16, n // 16, 1), (16, 16, 1), packed))
        row(f"16 x 16 tiled f32 product, n = {n}", seconds, plain, lambda s: f"{2 * n**3 / s / 1e9:.2f} GFLOP/s")

    def row_products(self, rows: int, k: int) -> None:
        half = np.float32(0.5)
        weight, x = self.filled(rows * k, half.tobytes()[2:]), self.filled(16 * k, half.tobytes()[2:])
        x_floats, out = self.filled(k, half.tobytes()), self.filled(16 * rows, half.tobytes())
        arguments = [ctypes.c_void_p(p) for p in (out, weight, x_floats)]
        plain = best(lambda: self.plain.row_product(*arguments, rows, k))
        for n in (1, 16):
            call = Gemm(trans_a=1, trans_b=0, m=rows, n=n, k=k, a=weight, lda=k, b=x, ldb=k, c=out, ldc=rows)
            call.alpha, call.c_is_float = 1, 1
            seconds = best(lambda c=call: self.runtime.gemm(ctypes.byref(c)))  # type: ignore[misc]
            row(f"cuBLAS, {n} x {k} by {rows}", seconds, n * plain, lambda s: f"{rows * k / s / 1e9:.2f} G w/s")

    def compiling(self) -> None:
        start = time.perf_counter()
        compile_module(f"// {start}\n{KERNELS}", [], [], instrumented=False)
        first = time.perf_counter() - start
        start = time.perf_counter()
        LoadedModule(compile_module(KERNELS, [], [], instrumented=False))
        print(f"compiling three kernels: {first:.2f} s; from the cache: {(time.perf_counter() - start) * 1e3:.1f} ms")


def plain_loops() -> ctypes.CDLL:
    """The plain loops, compiled with the flags of kernels."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "plain.cpp"), Path(folder, "plain.so")
        source.write_text(PLAIN)
        command = [compiler(), "-O2", "-ffp-contract=off", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))


def best(call: Callable[[], object]) -> float:
    """Processor seconds of the fastest of several calls."""
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def row(label: str, seconds: float, plain: float, shown: Callable[[float], str]) -> None:
    print(f"{label:34} {shown(seconds):>12} {shown(plain):>12} {seconds / plain:8.2f}")


if __name__ == "__main__":
    main()
