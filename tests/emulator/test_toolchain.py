"""How CUDA C becomes a module: rewriting, refusals, the compiler's messages, the cache."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader import KIT
from grader.emulator.compiler import toolchain
from grader.emulator.compiler.rewriter import SourceError, rewrite
from grader.emulator.compiler.toolchain import CompileError, compile_module

STUB = """#line 1 "rmsnorm.cu"
// a comment with __global__ and <<<>>> in it
extern "C" __global__ void rmsnorm(float* __restrict__ out, const float* __restrict__ x, int n) {
    extern __shared__ float partial[];  // as in "asm"
    const int unused = n;
    NOT_IMPLEMENTED("s03.1");  // TODO s03.1: sum the squares
}
"""


def build(source: str, *options: str, instrumented: bool = False) -> toolchain.CompiledModule:
    return compile_module(source, list(options), [], instrumented=instrumented)


def test_a_stub_compiles_in_both_builds(cache: Path) -> None:
    for instrumented in (False, True):
        module = build(STUB, "-std=c++17", "-DNOT_IMPLEMENTED(id)=", instrumented=instrumented)
        assert module.kernels == ["rmsnorm"]
        assert module.log == ""


def test_compile_errors_have_the_students_lines(cache: Path) -> None:
    kernel = "{\n    extern __shared__\n    float a[];\n\n    *out = b;\n}\n"
    source = f'// first\nextern "C" __global__ void f(float* out) {kernel}'
    with pytest.raises(CompileError) as caught:
        build(source)
    assert "kernel.cu:6:12: error: " in caught.value.log
    with pytest.raises(CompileError) as caught:
        build('#line 11 "norm.cu"\n' + source)
    assert "norm.cu:16:12: error:" in caught.value.log
    assert caught.value.command[0] == toolchain.compiler()


def test_unfinished_source_and_wrong_kernels_are_told_plainly(cache: Path) -> None:
    with pytest.raises(CompileError) as caught:
        build('extern "C" __global__ void f(int* out) {\n    if (*out) {\n        *out = 1;\n}\n')
    assert "PAGEDLAB" not in caught.value.log
    assert "kernel.cu:4" in caught.value.log
    with pytest.raises(CompileError, match=r"a kernel \(__global__\) returns void"):
        build('extern "C" __global__ int f(int* out) { return *out; }')
    for text in ("extern", "__global__", '"C', "__shared__", "{ __device__", "f(", "__launch_bounds__(", "/*", "#"):
        with pytest.raises((CompileError, SourceError)):
            build(f"{text}\n__device__ int x = y;")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ('asm("mov");', "inline PTX"),
        ("f<<<1, 1>>>();", "launching a kernel from source"),
        ("float v = tex2D(t, 1, 2);", "textures"),
        ("cooperative_groups::memcpy_async(g, a, b, 4);", "asynchronous copies"),
        ("nvcuda::wmma::fill_fragment(a, 0);", "tensor cores"),
        ("cub::BlockReduce<float, 32> reduce;", "cub:: is not emulated"),
        ("int v = __shfl_down(3, 1);", "use __shfl_down_sync"),
        ("cudaMalloc(&p, 4);", "host functions"),
        ("__shared__ float total = 0;", "cannot have an initialiser"),
        ("extern __shared__ float total;", "array of unknown size"),
    ],
)
def test_what_is_not_emulated_is_named_with_its_line(statement: str, said: str) -> None:
    source = f'#line 1 "f.cu"\n\nextern "C" __global__ void f() {{\n    {statement}\n}}\n'
    with pytest.raises(SourceError, match=said) as caught:
        rewrite(source)
    assert str(caught.value).startswith("f.cu:3: error: ")


def test_headers_that_are_not_emulated_are_named() -> None:
    with pytest.raises(SourceError, match=r"f.cu:2: error: <mma.h>: wmma"):
        rewrite('#line 1 "f.cu"\n#include <cuda_bf16.h>\n#include <mma.h>\n')


def test_an_undefined_function_is_a_compile_error() -> None:
    from tests.emulator.device_client import CompileFailed, start_device

    source = 'extern "C" int missing(int); extern "C" __global__ void f(int* out) { *out = missing(1); }'
    with start_device() as device, pytest.raises(CompileFailed, match="missing is called, but no device function"):
        device.compile(source)


def test_kernels_are_found_whatever_their_declaration(cache: Path) -> None:
    module = build("""
    #define THREADS 64
    extern "C" __global__ void first(int*);
    template <class T> __global__ void generic(T* out) { *out = 1; }
    __global__ void mangled(int* out) { *out = 1; }
    namespace tools { template <int N> __device__ int twice() { return 2 * N; } }
    extern "C" {
    __launch_bounds__(THREADS * 2, 1) __global__ void second(int* out) { *out = tools::twice<4>(); }
    __global__ __launch_bounds__(THREADS) void third(int* out) { if (*out) { *out = 1; } }
    }
    #ifdef NEVER
    extern "C" __global__ void fourth(int* out) { *out = 1; }
    #endif
    __global__ void first(int* out) { const char* text = "} __global__ {"; *out = text[0] + '}'; }
    """)
    assert module.kernels == ["second", "third", "fourth", "first"]
    symbols = subprocess.run(["nm", str(module.path)], capture_output=True, text=True, check=True).stdout
    assert "pagedlab_kernel_third" in symbols
    assert "pagedlab_kernel_fourth" not in symbols


def test_shared_memory_in_all_its_forms(cache: Path) -> None:
    module = build("""
    extern __shared__ float whole[];
    template <int N> __device__ float* rows() { __shared__ float kept[N]; return kept; }
    extern "C" __global__ void f(float* out) {
        extern __shared__ __align__(16) unsigned char bytes[];
        extern __shared__ float tile[][4];
        static __shared__ float4 vectors[2];
        __shared__ __align__(8) float pair[2][3];
        __shared__ alignas(64) char lines[64];
        lines[threadIdx.x] = 1;
        float4* cast = (float4*)whole;
        vectors[0] = cast[1];
        pair[1][2] = tile[2][3] + bytes[1] + lines[3];
        out[0] = whole[3] + pair[1][threadIdx.x] + vectors[threadIdx.x].y + *rows<10>() + (whole + 1)[2];
    }
    extern "C" __global__ void g(float* out) { __shared__ float a[7]; a[threadIdx.x] = 1; out[0] = a[3]; }
    """)
    assert module.shared == {"f": 32 + 24 + 64 + 40, "g": 28 + 40}


def test_options_of_nvcc_are_understood(cache: Path) -> None:
    build("static_assert(WIDTH == 4);", "-O3", "--use_fast_math", "-arch=sm_86", "-lineinfo", "-DWIDTH=4", "-std=c++20")
    with pytest.raises(CompileError, match="Unknown option '-fsome'"):
        build("", "-fsome")


def test_cache_by_content(cache: Path) -> None:
    assert not build(STUB, "-DNOT_IMPLEMENTED(id)=").cached
    assert build(STUB, "-DNOT_IMPLEMENTED(id)=").cached
    assert not build(STUB, "-DNOT_IMPLEMENTED(id)=return").cached
    assert not build(STUB + "\n", "-DNOT_IMPLEMENTED(id)=").cached


@pytest.mark.parametrize("suffix", [".so", ".json"])
def test_damaged_files_of_the_cache_are_made_anew(suffix: str, cache: Path) -> None:
    path = build(STUB, "-DNOT_IMPLEMENTED(id)=").path.with_suffix(suffix)
    whole = path.read_bytes()
    for damaged in (whole[:9], whole[:9].ljust(len(whole), b"\0")):
        path.write_bytes(damaged)
        assert not build(STUB, "-DNOT_IMPLEMENTED(id)=").cached
        assert len(path.read_bytes()) == len(whole)


def test_options_reach_the_kits_headers_too(cache: Path) -> None:
    source = 'extern "C" __global__ void f(int* out) { static_assert(__cplusplus > 202000); *out = max(WIDTH, 1); }'
    assert build(source, "-std=c++20", "-DWIDTH=4").log == ""
    with pytest.raises(CompileError, match="static assertion failed"):
        build(source, "-DWIDTH=4")


def test_a_changed_header_is_seen(cache: Path, tmp_path: Path) -> None:
    header = tmp_path / "constants.h"
    source = '#include "constants.h"\nextern "C" __global__ void f(int* out) { *out = VALUE; }\n'
    header.write_text("#define VALUE 1\n")
    first = compile_module(source, [], [str(tmp_path)], instrumented=False)
    assert compile_module(source, [], [str(tmp_path)], instrumented=False).cached
    header.write_text("#define VALUE 2\n")
    assert compile_module(source, [], [str(tmp_path)], instrumented=False).path != first.path


def test_processes_share_a_cache(tmp_path: Path) -> None:
    program = (
        "import json, sys\nfrom grader.emulator.compiler.toolchain import compile_module\n"
        "module = compile_module(sys.argv[1], ['-DNOT_IMPLEMENTED(id)='], [], instrumented=False)\n"
        "print(json.dumps([str(module.path), module.path.stat().st_size]))"
    )
    environment = os.environ | {"PAGEDLAB_CACHE": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", program, STUB], cwd=KIT, env=environment, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    answers = {process.communicate()[0] for process in processes}
    assert len(answers) == 1
    assert json.loads(answers.pop())[1] > 0
    assert sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file()) == [".gch", ".gch", ".json", ".so"]
    assert not list(tmp_path.glob("unfinished-*"))


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    toolchain.compiler.cache_clear()
    try:
        with pytest.raises(CompileError, match="install g\\+\\+ or clang\\+\\+"):
            toolchain.compiler()
    finally:
        monkeypatch.undo()
        toolchain.compiler.cache_clear()


def test_counted_build_keeps_vectors_whole(cache: Path) -> None:
    """The compiler must not split a float4 into four accesses: counters and checks depend on it."""
    source = 'extern "C" __global__ void f(float4* x) { float4 v = x[1]; v.x += v.w; x[0] = v; }'
    module = build(source, instrumented=True)
    hooks = subprocess.run(["nm", "-u", str(module.path)], capture_output=True, text=True, check=True).stdout
    assert "__tsan_read16" in hooks
    assert "__tsan_read4" not in hooks
    assert "libtsan" not in subprocess.run(["ldd", str(module.path)], capture_output=True, text=True).stdout
