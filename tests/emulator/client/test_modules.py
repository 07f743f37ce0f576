"""Modules, the compiler, whole programs, and what the emulated pycuda lacks."""

import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
import pytest
from pycuda.compiler import SourceModule, compile

from tests.emulator.client.pycuda_rows import ARGUMENT, LOGIC, SOURCE, expect_error
from tests.emulator.conftest import Program

pytestmark = pytest.mark.usefixtures("context")


@pytest.fixture(scope="module")
def module(context: None) -> SourceModule:
    return SourceModule(SOURCE, no_extern_c=True)


def test_modules(module: SourceModule) -> None:
    expect_error(lambda: module.get_function("missing"), LOGIC, "cuModuleGetFunction failed: named symbol not found$")
    expect_error(lambda: module.get_function(b"scale"), ARGUMENT, "Python argument types in\n    Module.get_function")
    expect_error(lambda: module.get_global("missing"), LOGIC, "cuModuleGetGlobal failed: named symbol not found$")
    pointer, size = module.get_global("coefficients")
    assert size == 16
    drv.memcpy_htod(pointer, np.array([1, 2, 3, 4], np.float32))
    out = gpuarray.zeros(2, np.float32)
    module.get_function("variables")(out, block=(1, 1, 1))
    assert out.get().tolist() == [3, 7]
    assert drv.from_device(module.get_global("counter")[0], 1, np.int32)[0] == 7


def test_compiler(capfd: Any) -> None:
    wrapped = SourceModule("struct S { int a; };\n__global__ void k(int* out) { out[0] = 5; }")
    out = gpuarray.zeros(1, np.int32)
    wrapped.get_function("k")(out, block=(1, 1, 1))
    assert out.get()[0] == 5
    unwrapped = SourceModule("__global__ void k(int* out) { out[0] = 5; }", no_extern_c=True)
    expect_error(lambda: unwrapped.get_function("k"), LOGIC, "cuModuleGetFunction failed: named symbol not found$")
    with pytest.raises(drv.CompileError):
        SourceModule("#include <cuda_bf16.h>\n__global__ void k(__nv_bfloat16* out) {}")
    source = '#line 1 "mine.cu"\n\nextern "C" __global__ void k(int* out) { out[0] = WIDTH; }\n'
    with pytest.raises(drv.CompileError) as caught:
        SourceModule(source, no_extern_c=True, arch="sm_80", cache_dir=False)
    assert "mine.cu:2" in caught.value.stderr
    assert "WIDTH" in caught.value.stderr
    assert caught.value.msg in str(caught.value)
    assert caught.value.stderr in str(caught.value)
    assert isinstance(caught.value.command_line, list)
    assert isinstance(caught.value.stdout, str)
    kept = drv.module_from_buffer(compile(source, options=["-DWIDTH=9"], no_extern_c=True, keep=True))
    kept.get_function("k")(out, block=(1, 1, 1))
    assert out.get()[0] == 9
    assert "*** compiler output in " in capfd.readouterr().out


def test_modules_of_one_source_have_variables_of_their_own() -> None:
    source = """
    __device__ int counter = 5;
    extern "C" __global__ void count(int* out) { *out = counter++; }
    """
    out = np.zeros(1, np.int32)
    modules = [SourceModule(source, no_extern_c=True) for _ in range(2)]
    for module in modules:
        module.get_function("count")(drv.Out(out), block=(1, 1, 1))
        assert out[0] == 5
    drv.memcpy_htod(modules[0].get_global("counter")[0], np.array([77], np.int32))
    modules[0].get_function("count")(drv.Out(out), block=(1, 1, 1))
    assert out[0] == 77


@pytest.mark.parametrize("constant", ["__device__ const", "__constant__ const", "static constexpr __device__"])
def test_variables_and_constants_in_one_source(constant: str) -> None:
    source = f"""
    __constant__ float scale[2] = {{2, 3}};
    __device__ const float* pointer;
    {constant} float table[2] = {{10, 20}};
    extern "C" __global__ void k(float* out) {{ *out = scale[1] + table[1] + (pointer == nullptr); }}
    """
    out = np.zeros(1, np.float32)
    module = SourceModule(source, no_extern_c=True)
    module.get_function("k")(drv.Out(out), block=(1, 1, 1))
    assert out[0] == 24
    assert module.get_global("scale")[1] == module.get_global("pointer")[1] == 8


def test_include_directories(tmp_path: Any) -> None:
    (tmp_path / "width.h").write_text("#define WIDTH 11\n")
    source = '#include "width.h"\nextern "C" __global__ void k(int* out) { out[0] = WIDTH; }'
    out = gpuarray.zeros(1, np.int32)
    for width in (11, 12):  # an edited header is seen
        (tmp_path / "width.h").write_text(f"#define WIDTH {width}\n")
        module = SourceModule(source, no_extern_c=True, include_dirs=[str(tmp_path)])
        module.get_function("k")(out, block=(1, 1, 1))
        assert out.get()[0] == width


def test_compiler_warnings_are_python_warnings() -> None:
    source = '#warning "look here"\nextern "C" __global__ void k() {}'
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SourceModule(source, no_extern_c=True)
    assert len(caught) == 1
    for warning in caught:
        assert warning.category is UserWarning
        assert warning.filename == __file__
        assert str(warning.message).startswith("The CUDA compiler succeeded, but said the following:\n")


# What is not emulated


@pytest.mark.parametrize(
    "call",
    [
        lambda: drv.Memcpy2D, lambda: drv.managed_empty, lambda: drv.module_from_file, lambda: gpuarray.arange,
        lambda: gpuarray.dot, lambda: gpuarray.zeros(3) + 1, lambda: gpuarray.zeros(3).T,
        lambda: gpuarray.zeros(3) == 0, lambda: __import__("pycuda.curandom"), lambda: __import__("pycuda.elementwise"),
        lambda: SourceModule("").get_texref("t"), lambda: drv.Context.get_current().set_limit,
    ],
)  # fmt: skip
def test_what_is_not_emulated_says_so(call: Callable[[], Any]) -> None:
    with pytest.raises(NotImplementedError, match="is not emulated"):
        call()


def test_unknown_names_are_attribute_errors() -> None:
    import pycuda.compiler
    import pycuda.tools

    for module in (drv, gpuarray, pycuda.compiler, pycuda.tools):
        assert isinstance(module, types.ModuleType)
        assert not hasattr(module, "no_such_name")


# Whole programs


def test_program_with_autoinit_ends_quietly(program: Program) -> None:
    result = program(
        "import numpy as np, pycuda.autoinit, pycuda.gpuarray as g, pycuda.driver as d\n"
        "a, b, e = g.to_gpu(np.arange(4)), d.mem_alloc(9), d.Event()\n"
        "print(a.get(), pycuda.autoinit.device.compute_capability(), d.Context.get_current() is not None)"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "[0 1 2 3] (8, 6) True\n", "")


def test_program_with_the_primary_context(program: Program) -> None:
    result = program("import pycuda.autoprimaryctx as c\nprint(c.device.count())")
    assert (result.returncode, result.stdout, result.stderr) == (0, "1\n", "")


def test_program_without_init(program: Program) -> None:
    result = program("import pycuda.driver as d\ntry: d.Device(0)\nexcept d.LogicError as e: print(e)")
    assert result.stdout == "cuDeviceGet failed: initialization error\n"


def test_program_that_forgets_its_context_is_aborted(program: Program) -> None:
    result = program("import pycuda.driver as d\nd.init()\nc = d.Device(0).make_context()\nprint('done')")
    assert result.returncode != 0
    assert result.stdout == "done\n"
    assert "The context stack was not empty" in result.stderr
    assert "Context.pop()" in result.stderr


def test_forked_process_is_refused(program: Program) -> None:
    result = program(
        "import os, pycuda.autoinit, pycuda.driver as d\n"
        "if os.fork() == 0:\n"
        "    try: d.mem_alloc(4)\n"
        "    except d.LogicError as e: print(e, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\nprint(int(d.mem_alloc(4)) > 0)"
    )
    assert "forked" in result.stdout
    assert result.stdout.endswith("True\n")
