"""Kernels that would fool the counters and checks are refused; what courses write is not."""

import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader.emulator.compiler import lint
from grader.emulator.compiler.toolchain import CompileError, compile_module
from tests.emulator.device_client import CompileFailed, start_device
from tests.emulator.test_counters import count

KERNEL = 'extern "C" __global__ void f(float* x, int n)'
EVASIONS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("evasions.toml").read_text("utf-8"))
IN_HEADERS = list(EVASIONS)[:: 1 if os.environ.get("PAGEDLAB_ALL") == "1" else 6]
"""Those that are tried in a header too."""

ACCEPTED = {
    "templates, lambdas and constexpr": """
        #include <type_traits>
        template <class T, int N, class F> __device__ T folded(const T (&values)[N], F change) {
            T sum = 0;
            if constexpr (std::is_floating_point_v<T>) {
                #pragma unroll 4
                for (int i = 0; i < N; i++) sum += change(values[i]);
            }
            return sum;
        }
        KERNEL {
            const float four[4] = {x[0], x[1], x[2], x[3]};
            x[n] = folded(four, [=] __device__(float v) { return v * n; });
        }""",
    "functions as template arguments": """
        __device__ float halved(float v) { return v / 2; }
        template <float (*Change)(float)> __device__ void change(float* x) { *x = Change(*x); }
        template <class F> __device__ __forceinline__ float called(F function, float v) { return function(v); }
        KERNEL { change<halved>(x); change<expf>(x + 1); x[2] = called(halved, x[2]) + called(sqrtf, x[3]); }""",
    "C++'s headers": """
        #include <algorithm>
        #include <array>
        #include <cassert>
        #include <cfloat>
        #include <climits>
        #include <cmath>
        #include <cstdint>
        #include <cstdio>
        #include <cstring>
        #include <functional>
        #include <limits>
        #include <stdlib.h>
        #include <string>
        #include <tuple>
        #include <vector>
        KERNEL {
            assert(n > 0 && "a message");
            std::array<float, 2> pair = {std::numeric_limits<float>::infinity(), -FLT_MAX};
            const uint32_t bits = std::min<uint32_t>(n, INT_MAX);
            if (threadIdx.x == 0) printf("%d %f\\n", n, std::pow(x[0], 2.0f));
            memcpy(x, x + 1, 12);
            std::memset(x + 4, 0, 24);
            x[bits] = pair[0] + std::abs(std::tanh(x[1])) + INFINITY + NAN;
        }""",
    "CUDA's headers, groups and small floats": """
        #include <cooperative_groups.h>
        #include <cooperative_groups/reduce.h>
        #include <cuda_bf16.h>
        #include <cuda_fp16.h>
        namespace cg = cooperative_groups;
        KERNEL {
            auto warp = cg::tiled_partition<32>(cg::this_thread_block());
            const float sum = cg::reduce(warp, x[threadIdx.x], cg::plus<float>());
            x[n] = __bfloat162float(__float2bfloat16(sum)) + __half2float(__float2half(sum));
        }""",
    "attributes and pragmas of CUDA": """
        #pragma nv_diag_suppress 177
        #pragma GCC diagnostic ignored "-Wunused-variable"
        struct __align__(16) Row { float values[4]; };
        struct __attribute__((packed, aligned(4))) Packed { char tag; float value; };
        [[maybe_unused]] static __device__ __noinline__ float far(float v) { return v + 1; }
        __attribute__((noinline)) __device__ float farther(float v) { return far(v) + 1; }
        [[nodiscard]] __device__ __forceinline__ float near(float v) { return v * 2; }
        extern "C" __global__ void __launch_bounds__(128, 2) g(const float* __restrict__ in, float* __restrict__ out) {
            #pragma unroll
            for (int i = 0; i < 4; i++) out[i] = farther(near(__ldg(in + i)));
            if (__builtin_expect(in[5] > 0, 1)) reinterpret_cast<Row*>(out)[2] = reinterpret_cast<const Row*>(in)[3];
        }
        KERNEL { *x = n; }""",
    "memories of the device": """
        __device__ int counter;
        __constant__ float weights[2];
        __device__ const float fixed[2] = {1, 2};
        static const float table[] = {3, 4};
        constexpr float more[] = {5, 6};
        KERNEL {
            extern __shared__ float dynamic[];
            __shared__ float kept[32];
            kept[threadIdx.x] = weights[n] + fixed[n] + table[n] + more[n];
            __syncthreads();
            dynamic[threadIdx.x] = kept[31 - threadIdx.x];
            atomicAdd(&counter, 1);
            atomicMax((int*)x, n);
            x[n] = dynamic[n] + counter + clock64();
        }""",
    "own macros": """
        #ifndef __OWN_CUH__
        #define __OWN_CUH__
        #define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
        #define FETCH4(address) (reinterpret_cast<float4*>(&(address))[0])
        #define SAY(words) _Pragma(#words)
        #ifndef M_PI
        #define M_PI 3.14
        #endif
        #if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        #define FULL_MASK 0xffffffff
        #endif
        KERNEL {
            SAY(unroll 2)
            for (int i = 0; i < CEIL_DIV(n, 4); i++) FETCH4(x[4 * i]) = make_float4(M_PI, 1, 2, 3);
            x[0] += __shfl_xor_sync(FULL_MASK, x[0], 1);
        }
        #endif""",
    "recursion and a choice with switch": """
        __device__ int power(int base, int n) { return n == 0 ? 1 : base * power(base, n - 1); }
        KERNEL {
            switch (n) {
                case 0: x[0] = 1; break;
                case 1: x[1] = power(3, n); break;
                case 2: x[2] = 7; break;
                case 3: x[n] = 9; break;
                case 4: x[5] = 2; break;
                default: __trap();
            }
        }""",
}  # fmt: skip


def compiled(source: str, *options: str, folders: tuple[Path, ...] = (), instrumented: bool = False) -> str:
    """What the compiler says of a source; raises CompileError."""
    text = '#line 1 "f.cu"\n' + source.replace("KERNEL", KERNEL)
    module = compile_module(text, options, [str(folder) for folder in folders], instrumented=instrumented)
    return module.log


def refusal(source: str, *options: str, folders: tuple[Path, ...] = ()) -> str:
    with pytest.raises(CompileError) as caught:
        compiled(source, *options, folders=folders)
    return caught.value.log


@pytest.mark.parametrize(("name", "file"), [*((n, "f.cu") for n in EVASIONS), *((n, "own.cuh") for n in IN_HEADERS)])
def test_evasions_are_refused_with_their_line(name: str, file: str, cache: Path, tmp_path: Path) -> None:
    evasion = EVASIONS[name]
    (tmp_path / "own.cuh").write_text(evasion["source"].replace("KERNEL", KERNEL))
    source = evasion["source"] if file == "f.cu" else '#include "own.cuh"\n'
    log = refusal(source, *evasion.get("options", ()), folders=(tmp_path,))
    assert evasion["says"] in log
    lines = [number for number, line in enumerate(evasion["source"].split("\n"), 1) if line.endswith("// here")]
    if lines:
        assert f"{file}:{lines[0]}:" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_courses_write_is_accepted(name: str, cache: Path) -> None:
    for instrumented in (False, True):
        assert compiled(ACCEPTED[name], instrumented=instrumented) == ""


HEADERS = {
    "the emulator's names": ('extern "C" void pagedlab_trap(int);', "inner.h:1: error: pagedlab_trap belongs to"),
    "marks of a system header": ('# 1 "/usr/include/math.h" 1 3', "inner.h:1: error: # and a number"),
    "a header of the system by pragma": (
        "#pragma GCC system_header\n#include <quiet.h>",
        "quiet.h:2: error: the attribute no_sanitize_thread",
    ),
    "a file elsewhere by a link": ("#include <elsewhere.h>", "inner.h:1: error: a kernel can include"),
    "a file elsewhere by a way up": ('#include "../elsewhere/notes"', "inner.h:1: error: a kernel can include"),
    "a file of the folder by a way up": ('#include "../own/quiet.h"', "write ../own/quiet.h as its path in one of"),
    "a file elsewhere by its path": ('#include "/etc/passwd"', "inner.h:1: error: a kernel can include"),
    "a file elsewhere by a macro": ('#define FILE "pyproject.toml"\n#include FILE', "inner.h:2: error: a kernel can"),
    "itself": ('#include "inner.h"', "include each other without end"),
    "itself twice": ('#include "inner.h"\n#include "inner.h"', "include each other without end"),
    "a large file": ("//" + (2 << 20) * "x", "outer.h:2: error: the headers are too large"),
    "a refused header": ("#include <mma.h>", "inner.h:1: error: <mma.h>: wmma"),
    "the whole grid": (
        "#include <cooperative_groups.h>\n__device__ void wait() {\n    cooperative_groups::this_grid().sync();\n}",
        "inner.h:3: error: this_grid:",
    ),
    "a shared variable with a value": (
        "__device__ int f() { __shared__ int n = 1; return n; }",
        "inner.h:1: error: a __s",
    ),
    "one build only": ("#ifdef __SANITIZE_THREAD__\n#define inline\n#endif", "inner.h:2: error: here the text is"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_own_headers_are_looked_at_too(name: str, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    text, said = HEADERS[name]
    folder, elsewhere = tmp_path_factory.mktemp("own"), tmp_path_factory.mktemp("elsewhere") / "notes"
    elsewhere.write_text("not for students\n")
    (folder / "elsewhere.h").symlink_to(elsewhere)
    (folder / "quiet.h").write_text(
        "#define PASTED(a, b) a##b\n__attribute__((PASTED(no_sani, tize_thread))) void q();\n"
    )
    (folder / "outer.h").write_text('#pragma once\n#include "inner.h"\n')
    (folder / "inner.h").write_text(f"{text}\n")
    log = refusal("#include <outer.h>\nKERNEL { x[0] = 1; }", folders=(folder,))
    assert said in log
    assert "not for students" not in log


def test_own_headers_are_accepted(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kernels" / "common"
    folder.mkdir(parents=True)
    (folder / "types.cuh").write_text(
        "#ifndef _TYPES_\n#define _TYPES_\n#include <cuda_bf16.h>\nusing T = float;\n#endif\n"
    )
    (folder / "half.cuh").write_text(
        '#include "types.cuh"\n#include <common/types.cuh>\n__device__ T half_of(T v) { return v / 2; }\n'
    )
    source = "#include <common/half.cuh>\nKERNEL { x[0] = half_of(x[1]); }"
    assert compiled(source, folders=(tmp_path / "kernels",)) == ""


def test_what_was_looked_at_is_compiled(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = tmp_path / "own.h"
    header.write_text("#define ANSWER 1\n")
    look = lint.check_text

    def look_and_change(*arguments: Any) -> list[tuple[str, str]]:
        texts = look(*arguments)
        header.write_text("#define ANSWER quiet()\n")
        return texts

    monkeypatch.setattr(lint, "check_text", look_and_change)
    assert compiled("#include <own.h>\nKERNEL { x[0] = ANSWER; }", folders=(tmp_path,)) == ""


def test_a_module_in_the_cache_is_not_looked_at_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled("KERNEL { x[0] = 1; }")
    monkeypatch.delattr(lint, "check_text")
    compiled("KERNEL { x[0] = 1; }")
    with pytest.raises(AttributeError):
        compiled("KERNEL { x[0] = 2; }")


def test_a_device_lives_on_after_a_refusal() -> None:
    with start_device() as device:
        with pytest.raises(CompileFailed, match="inline PTX"):
            device.compile('#define X __as##m__\nextern "C" __global__ void f(float* x) { __asm("nop"); }')
        out = device.empty(1)
        device.compile('extern "C" __global__ void f(float* x) { *x = 3; }')("f", out)
        assert out[0] == 3


COPIES = {
    "memcpy(x, x + 8, 24);": (24, 24),
    "__builtin_memcpy(x, x + 8, 4);": (4, 4),
    "std::memmove(x, x + 8, 12);": (12, 12),
    "memset(x, 0, 28);": (0, 28),
    "std::copy(x + 8, x + 14, x);": (24, 24),
    "std::fill_n((char*)x, 20, 1);": (0, 20),
    "*(Six*)x = *(Six*)(x + 8);": (24, 24),
    "*(Six*)x = Six{};": (0, 24),
    "x[0] = modff(x[1], x + 2);": (4, 8),
    "sincosf(x[1], x + 2, x + 3);": (4, 8),
}


def test_copies_of_any_size_are_counted() -> None:
    """Compilers make accesses without hooks of small copies, were they not told to call a function."""
    kernels = "".join(
        f'extern "C" __global__ void copy{i}(float* x) {{ {statement} }}\n' for i, statement in enumerate(COPIES)
    )
    source = f"#include <algorithm>\n#include <cstring>\nstruct Six {{ float values[6]; }};\n{kernels}"
    with start_device() as device:
        x = device.array(np.zeros(16, np.float32))
        for i, (statement, expected) in enumerate(COPIES.items()):
            counters = count(device, source, f"copy{i}", x, block=(1,))
            assert (counters.load_bytes, counters.store_bytes) == expected, statement
