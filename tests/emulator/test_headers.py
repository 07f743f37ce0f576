"""Headers beside the kernels and of the kit's: what they may hold, how messages name them, what the cache knows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader.emulator.compiler.headers import with_headers
from grader.emulator.compiler.toolchain import CompiledModule, CompileError, compile_module
from tests.emulator.device_client import start_device

KERNEL = 'extern "C" __global__ void f(float* x, int n)'


def build(source: str, folder: Path, *, instrumented: bool = False) -> CompiledModule:
    text = f'#line 1 "f.cu"\n{source.replace("KERNEL", KERNEL)}'
    return compile_module(text, [], [str(folder)], instrumented=instrumented)


def write(folder: Path, **headers: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in headers.items():
        (folder / f"{name}.cuh").write_text(text)
    return folder


def test_a_header_holds_what_a_kernels_file_does(cache: Path, tmp_path: Path) -> None:
    shared = "template <int N> __device__ float* rows() { __shared__ float kept[N]; return kept; }\n"
    kernel = 'extern "C" __global__ void g(float* x) { extern __shared__ float own[]; own[threadIdx.x] = *x; }\n'
    write(
        tmp_path / "own",
        shared=f"#pragma once\n{shared}__device__ int counter;\n__constant__ float weights[4];\n",
        kernel=f'#include "shared.cuh"\n#ifndef KERNEL_CUH\n#define KERNEL_CUH\n{kernel}#endif\n',
        host='#include <cstdio>\nint main() { printf("%p", malloc(4)); }\n',
    )
    included = '#include "shared.cuh"\n#include <kernel.cuh> // twice\n#include "kernel.cuh" /* as here\n*/\n'
    source = f'{included}#include "host.cuh"\n'
    module = build(source + "KERNEL { x[0] = *rows<8>() + counter + weights[n]; }", tmp_path / "own")
    assert module.log == ""
    assert set(module.kernels) == {"f", "g"}
    assert module.shared == {"f": 32, "g": 32}
    assert module.globals.keys() == {"counter", "weights"}


def test_errors_name_the_line_of_the_header_and_those_after_it(cache: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "own", first="// a comment\n__device__ float first() {\n    return y;\n}\n")
    with pytest.raises(CompileError) as caught:
        build('#include <cuda_bf16.h>\n#include "first.cuh"\n\nKERNEL {\n    x[0] = z;\n}', folder)
    assert "first.cuh:3:12: error:" in caught.value.log
    assert "f.cu:5:12: error:" in caught.value.log
    assert str(folder) not in caught.value.log
    with pytest.raises(CompileError, match=r"f.cu:2:10: fatal error: (?:second.cuh: No such|'second.cuh' file not)"):
        build('\n#include "second.cuh"\n', folder)


def test_the_cache_goes_by_the_text_of_headers(cache: Path, tmp_path: Path) -> None:
    source = '#include "outer.cuh"\nKERNEL { x[0] = VALUE; }'
    outer = '#pragma once\n#include "inner.cuh"\n'
    one, same, other = (
        write(tmp_path / name, outer=outer, inner=f"#define VALUE {value}\n")
        for name, value in (("one", 1), ("same", 1), ("other", 2))
    )
    for instrumented in (False, True):
        first = build(source, one, instrumented=instrumented)
        assert not first.cached
        assert build(source, same, instrumented=instrumented).cached
        assert not build(source, other, instrumented=instrumented).cached
        write(one, inner="#define VALUE 2\n")
        assert build(source, one, instrumented=instrumented).path != first.path
        write(one, inner="#define VALUE 1\n")


def test_the_kits_headers_are_found_everywhere(tmp_path: Path) -> None:
    kernel = 'extern "C" __global__ void f(float* x) { *x = warp_sum(1.0f) + warp_max(threadIdx.x); }'
    source = f'#include "warp.cuh"\n{kernel}'
    with start_device() as device:
        x = device.empty(1)
        device.compile(source)("f", x, block=(32,))
        assert x[0] == 32 + 31
    own = write(tmp_path / "own", warp="#define ALL_LANES 7\n")
    assert "#define ALL_LANES 7" in with_headers('#include "warp.cuh"\n', [own])
    assert "warp_sum" not in with_headers('#include "warp.cuh"\n', [own])


def test_reports_name_the_header_but_for_the_kits_the_line_that_calls(tmp_path: Path) -> None:
    own = "// a comment\n__device__ void move(float* x) {\n    x[threadIdx.x] = x[threadIdx.x ^ 1];\n}\n"
    folder = write(tmp_path / "own", own=own)
    source = (
        '#line 1 "f.cu"\n#include "own.cuh"\n#include "warp.cuh"\n'
        'extern "C" __global__ void f(float* x) {\n    move(x);\n'
        "    if (threadIdx.x < 16) x[threadIdx.x + 32] = warp_sum(1);\n}\n"
    )
    reports = checked(source, folder)
    race, divergence = reports["DATA_RACE"]["access"], reports["BARRIER_DIVERGENCE"]["access"]
    assert (race["file"], race["line"], race["text"]) == ("own.cuh", 3, "x[threadIdx.x] = x[threadIdx.x ^ 1];")
    assert (divergence["file"], divergence["line"]) == ("f.cu", 5)
    assert "own.cuh:3" in reports["DATA_RACE"]["message"]


def test_barriers_in_equal_lines_of_two_files_are_two(tmp_path: Path) -> None:
    folder = write(tmp_path / "own", own="#pragma once\n__device__ void wait() {\n    __syncthreads();\n}\n")
    kernel = 'extern "C" __global__ void f(float* x) {\n    if (threadIdx.x < 16) wait(); else __syncthreads();\n}\n'
    message = checked(f'#line 1 "f.cu"\n#include "own.cuh"\n{kernel}', folder)["BARRIER_DIVERGENCE"]["message"]
    assert "16 threads wait at the barrier in own.cuh:3, the first is thread (0,0,0)" in message
    assert "16 threads wait at the barrier in line 3, the first is thread (16,0,0)" in message


def checked(source: str, folder: Path) -> dict[str, Any]:
    """The reports of a checked launch of f(float* x) on 32 threads, by their verdicts."""
    with start_device() as device:
        x = device.array(np.zeros(64, np.float32))
        answer = device.ask("compile", source=source, options=[], include_dirs=[str(folder)])
        device.control("observe", counted=False, checked=True)
        device.launch(answer["module"], "f", device.pointers[id(x)].to_bytes(8, "little"), (1,), (32,))
        device.ask("sync")
        return {report["verdict"]: report for report in device.control("observed")["reports"]}
