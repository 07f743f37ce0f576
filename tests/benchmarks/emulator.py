"""How fast the emulator is on this machine, beside its goals: `python -m tests.benchmarks.emulator`.

The kernels are those of solutions/, on one core. Each figure stands beside a plain C++ loop that computes the same in
the same run, since only ratios mean anything elsewhere. Processor time is measured, the best of several runs counts.
"""

import ctypes
import importlib.util
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from grader import KIT
from grader.emulator.compiler.toolchain import compile_module, compiler
from grader.emulator.device.emulated_gpu import EmulatedGPU
from grader.emulator.native import LoadedModule

RUNS = 7
ARENA_BYTES = 64 << 30
KERNELS = KIT / "solutions" / "engine" / "kernels"
MOST_CHECKED = 6  # times the time of the same launch without checks
LEAST_SIMULATOR = 2000  # times the emulator's time per element
MOST_COMPILE, MOST_RELOAD = 0.7, 0.020  # seconds

PLAIN = r"""
#include <algorithm>
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
extern "C" void vector_add(float* out, const float* x, const float* y, int n) {
    for (int i = 0; i < n; i++) out[i] = x[i] + y[i];
}
extern "C" void rmsnorm(uint16_t* out, const uint16_t* x, const uint16_t* weight, int rows, int width, float eps) {
    for (int row = 0; row < rows; row++, x += width, out += width) {
        float sum = 0;
        for (int i = 0; i < width; i++) sum += widened(x[i]) * widened(x[i]);
        const float scale = 1 / sqrtf(sum / width + eps);
        for (int i = 0; i < width; i++) out[i] = rounded(widened(x[i]) * scale * widened(weight[i]));
    }
}
extern "C" void softmax(float* out, const float* x, int rows, int width) {
    for (int row = 0; row < rows; row++, x += width, out += width) {
        float sum = 0;
        const float maximum = *std::max_element(x, x + width);
        for (int i = 0; i < width; i++) sum += expf(x[i] - maximum);
        for (int i = 0; i < width; i++) out[i] = expf(x[i] - maximum) / sum;
    }
}
extern "C" void matmul(uint16_t* out, const uint16_t* x, const uint16_t* w, int rows, int columns, int depth) {
    for (int m = 0; m < rows; m++) {
        for (int n = 0; n < columns; n++) {
            float sum = 0;
            for (int k = 0; k < depth; k++) sum += widened(x[m * depth + k]) * widened(w[n * depth + k]);
            out[m * columns + n] = rounded(sum);
        }
    }
}
extern "C" void paged_attention(uint16_t* out, const uint16_t* q, const uint16_t* keys, const uint16_t* values,
                                const int* tables, const int* lengths, int sequences, int table_width, int block_size,
                                int heads, int kv_heads, int dim, float scale) {
    static float weights[1 << 16], sums[1 << 10];
    for (int b = 0; b < sequences; b++, tables += table_width) {
        for (int h = 0; h < heads; h++, q += dim, out += dim) {
            const auto begin = [&](int j) {
                return (long(tables[j / block_size] * block_size + j % block_size) * kv_heads +
                        h / (heads / kv_heads)) * dim;
            };
            float total = 0;
            for (int j = 0; j < lengths[b]; j++) {
                float dot = 0;
                for (int d = 0; d < dim; d++) dot += widened(q[d]) * widened(keys[begin(j) + d]);
                weights[j] = dot * scale;
            }
            const float maximum = *std::max_element(weights, weights + lengths[b]);
            std::fill(sums, sums + dim, 0.0f);
            for (int j = 0; j < lengths[b]; j++) {
                const float weight = expf(weights[j] - maximum);
                total += weight;
                for (int d = 0; d < dim; d++) sums[d] += weight * widened(values[begin(j) + d]);
            }
            for (int d = 0; d < dim; d++) out[d] = rounded(sums[d] / total);
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


class Shape(NamedTuple):
    """One kernel on one problem: its arguments, what it computes, the loop that computes the same."""

    kernel: str
    problem: str
    grid: list[int]
    arguments: bytes
    elements: int
    plain: Callable[[], object]


def main() -> None:
    bench = Bench()
    print(f"{'':40}ns per element{'plain loop':>14}{'ratio':>9}{'counted':>9}{'checked':>9}")
    rmsnorm, tree = bench.rmsnorm("rmsnorm", 64, 2048), bench.rmsnorm("rmsnorm_tree", 64, 2048)
    softmax = bench.softmax(64, 2048)
    tree_256 = bench.row(tree, 256, goal=30)
    bench.row(tree, 1024, goal=80)
    bench.row(rmsnorm, 256, goal=30)
    bench.row(rmsnorm, 1024, goal=80)
    bench.row(softmax, 256)
    bench.row(softmax, 1024)
    bench.row(bench.paged_attention(4, 512), 128)
    bench.row(bench.matmul(256), 16, 16)
    bench.row(bench.vector_add(1 << 18), 256)
    bench.row_products(16384, 2048)
    compiling()
    numba_simulator(tree_256)


class Bench:
    """A device in this process, on one core, and the plain loops."""

    def __init__(self) -> None:
        file = os.memfd_create("device-memory")
        os.ftruncate(file, ARENA_BYTES)
        self.control, _ = socket.socketpair()
        self.device = EmulatedGPU(file, ARENA_BYTES, ARENA_BYTES, 1, self.control.fileno())
        self.plain = plain_loops()
        self.modules: dict[str, int] = {}
        self.random = np.random.default_rng(0)

    def stored(self, array: np.ndarray) -> int:
        """The address of a copy in the device's memory."""
        address = int(self.device.alloc(array.nbytes)["ptr"])
        ctypes.memmove(address, np.ascontiguousarray(array).ctypes.data, array.nbytes)
        return address

    def normal(self, *shape: int, dtype: Any = ml_dtypes.bfloat16) -> int:
        return self.stored(self.random.standard_normal(shape).astype(dtype))

    def rmsnorm(self, kernel: str, rows: int, width: int) -> Shape:
        out, x, weight = self.normal(rows, width), self.normal(rows, width), self.normal(width)
        packed = struct.pack("PPPiif", out, x, weight, rows, width, 1e-5)
        plain = bound(self.plain.rmsnorm, out, x, weight, ctypes.c_int(rows), ctypes.c_int(width), ctypes.c_float(1e-5))
        return Shape(kernel, f"{rows} x {width}", [rows, 1, 1], packed, rows * width, plain)

    def softmax(self, rows: int, width: int) -> Shape:
        out, x = self.normal(rows, width, dtype="f4"), self.normal(rows, width, dtype="f4")
        plain = bound(self.plain.softmax, out, x, ctypes.c_int(rows), ctypes.c_int(width))
        packed = struct.pack("PPii", out, x, rows, width)
        return Shape("softmax", f"{rows} x {width}", [rows, 1, 1], packed, rows * width, plain)

    def paged_attention(self, sequences: int, context: int) -> Shape:
        heads, kv_heads, dim, block_size, width = 8, 2, 64, 16, context // 16
        cache = (sequences * width, block_size, kv_heads, dim)
        out, q = self.normal(sequences, heads, dim), self.normal(sequences, heads, dim)
        keys, values = self.normal(*cache), self.normal(*cache)
        tables = self.stored(self.random.permutation(sequences * width).astype(np.int32))
        lengths = self.stored(np.full(sequences, context, np.int32))
        pointers, sizes = (out, q, keys, values, tables, lengths), (sequences, width, block_size, heads, kv_heads, dim)
        scale = dim**-0.5
        packed = struct.pack("PPPPPPiiiiiif", *pointers, *sizes, scale)
        plain = bound(self.plain.paged_attention, *pointers, *map(ctypes.c_int, sizes), ctypes.c_float(scale))
        elements = sequences * heads * context * dim
        return Shape("paged_attention", f"{sequences} x {context}", [sequences, kv_heads, 1], packed, elements, plain)

    def matmul(self, n: int) -> Shape:
        pointers = [self.normal(n, n) for _ in range(3)]
        plain = bound(self.plain.matmul, *pointers, *map(ctypes.c_int, (n, n, n)))
        packed = struct.pack("PPPiii", *pointers, n, n, n)
        return Shape("matmul_tiled", f"{n}³", [n // 16, n // 16, 1], packed, n**3, plain)

    def vector_add(self, n: int) -> Shape:
        pointers = [self.normal(n, dtype="f4") for _ in range(3)]
        plain = bound(self.plain.vector_add, *pointers, ctypes.c_int(n))
        return Shape("vector_add", f"{n}", [n // 256, 1, 1], struct.pack("PPPi", *pointers, n), n, plain)

    def row(self, shape: Shape, *block: int, goal: float | None = None) -> float:
        """Measures and prints; returns nanoseconds per element."""
        seconds = self.seconds(shape, block)
        counted, checked = self.seconds(shape, block, counted=True), self.seconds(shape, block, checked=True)
        plain = best(shape.plain)
        each = seconds / shape.elements * 1e9
        label = f"{shape.kernel} {shape.problem}, {' x '.join(map(str, block))} threads"
        print(
            f"{label:40}{each:8.2f}{f' ≤ {goal}' if goal else '':6}{plain / shape.elements * 1e9:14.2f}"
            f"{seconds / plain:9.1f}{counted / seconds:8.1f}x{checked / seconds:8.1f}x ≤ {MOST_CHECKED}"
            f"  {said((goal is None or each <= goal) and checked <= MOST_CHECKED * seconds)}"
        )
        return each

    def seconds(self, shape: Shape, block: tuple[int, ...], *, counted: bool = False, checked: bool = False) -> float:
        file = "rmsnorm" if shape.kernel == "rmsnorm_tree" else shape.kernel.removesuffix("_tiled")
        if file not in self.modules:
            source = (KERNELS / f"{file}.cu").read_text(encoding="utf-8")
            self.modules[file] = self.device.compile(source, [], [])["module"]
        extent = [*block, 1, 1][:3]
        shared = 4 * block[0] if shape.kernel == "rmsnorm_tree" else 0
        self.device.control({"verb": "observe", "counted": counted, "checked": checked})
        launch = self.device.launch
        seconds = best(lambda: launch(self.modules[file], shape.kernel, shape.grid, extent, shared, shape.arguments))
        seen = self.device.control({"verb": "observed"})
        if self.device.error or seen["reports"]:
            raise SystemExit(f"{shape.kernel} failed: {self.device.error or seen['reports']}")
        return seconds

    def row_products(self, rows: int, k: int) -> None:
        weight, x = self.normal(rows, k), self.normal(16, k)
        x_floats, out = self.normal(k, dtype="f4"), self.normal(16, rows, dtype="f4")
        plain = best(bound(self.plain.row_product, out, weight, x_floats, ctypes.c_int(rows), ctypes.c_int(k)))
        sizes = {"m": rows, "k": k, "lda": k, "ldb": k, "ldc": rows, "trans_a": 1, "trans_b": 0}
        self.device.control({"verb": "observe", "counted": False, "checked": False})
        for n in (1, 16):
            call = {**sizes, "n": n, "a": weight, "b": x, "c": out, "alpha": 1.0, "beta": 0.0}
            seconds = best(lambda c=call: self.device.gemm("f32", **c)) / (n * rows * k)  # type: ignore[misc]
            each = plain / (rows * k)
            label = f"cublasGemmEx, {n} x {k} by {rows}"
            print(f"{label:40}{seconds * 1e9:8.2f}{each * 1e9:20.2f}{seconds / each:9.2f}")


def compiling() -> None:
    """The first kernel of stage 0 and the largest one, when the kit's header has been read once."""
    for name in ("vector_add", "paged_attention"):
        source = (KERNELS / f"{name}.cu").read_text(encoding="utf-8")
        for instrumented in (False, True):
            fresh = iter([f"{source}\n// {i} {time.time()}\n" for i in range(RUNS)])
            first = best(lambda s=fresh, i=instrumented: compile_module(next(s), [], [], instrumented=i))  # type: ignore[misc]
            cached = best(lambda s=source, i=instrumented: reload(s, i))  # type: ignore[misc]
            label = f"{name}{', instrumented' if instrumented else ''}"
            print(
                f"compile {label:32}{first:8.2f} s ≤ {MOST_COMPILE}; from the cache {cached * 1e3:.1f} ms ≤ "
                f"{MOST_RELOAD * 1e3:.0f}  {said(first <= MOST_COMPILE and cached <= MOST_RELOAD)}"
            )


def reload(source: str, instrumented: bool) -> None:
    LoadedModule(compile_module(source, [], [], instrumented=instrumented))


def numba_simulator(emulator: float) -> None:
    """The tree of RMSNorm in Numba's simulator, beside the emulator's nanoseconds per element."""
    if importlib.util.find_spec("numba") is None:
        print(
            "Numba's CUDA simulator: NOT RUN; pip install numba into an environment of its own, with the kit's packages"
        )
        return
    command = [sys.executable, "-m", "tests.benchmarks.numba_simulator"]
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    each = float(subprocess.run(command, env=environment, cwd=KIT, capture_output=True, check=True).stdout)
    ratio = each / emulator
    label = "Numba's simulator, rmsnorm_tree, 256 threads"
    print(
        f"{label:46}{each:,.0f} ns per element: {ratio:,.0f}x ≥ {LEAST_SIMULATOR:,}  {said(ratio >= LEAST_SIMULATOR)}"
    )


def said(holds: bool) -> str:
    return "holds" if holds else "MISSED"


def plain_loops() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "plain.cpp"), Path(folder, "plain.so")
        source.write_text(PLAIN)
        command = [compiler(), "-O2", "-ffp-contract=off", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))


def bound(function: Any, *arguments: Any) -> Callable[[], object]:
    """A call of a plain loop; whole numbers among the arguments are addresses."""
    passed = [ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments]
    return lambda: function(*passed)


def best(call: Callable[[], object]) -> float:
    """Processor seconds of the fastest of several calls, and of the processes that it starts."""
    seconds = []
    for _ in range(RUNS):
        start = processor_seconds()
        call()
        seconds.append(processor_seconds() - start)
    return min(seconds)


def processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
