"""The launchers, with small kernels that write down how they were launched."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given import ops
from given.contracts import CONTRACTS, ShapeError
from given.launch import Geometry, LaunchConfigError
from ml_dtypes import bfloat16

RECORDING_ARGMAX = """
extern "C" __global__ void argmax(int* out, const float* x, int num_rows, int num_columns) {
    if (blockIdx.x + threadIdx.x > 0) return;
    out[0] = gridDim.x;
    out[1] = blockDim.x;
    out[2] = num_rows;
    out[3] = num_columns;
    out[4] = static_cast<int>(x[1]);
}
"""
WRITE_ONE = """
extern "C" __global__ void softmax(float* out, const float* x, int num_rows, int num_columns) {
    extern __shared__ float scratch[];
    scratch[num_columns - 1] = 1.0f;
    out[0] = scratch[num_columns - 1];
}
"""

Array = Any


@pytest.fixture
def engine(tmp_path: Path, emulated_gpu: None) -> Callable[..., None]:
    """Configure an engine of these kernel files and this launch.toml."""

    def write(launch: str = "", **kernels: str) -> None:
        (tmp_path / "kernels").mkdir(exist_ok=True)
        (tmp_path / "launch.toml").write_text(launch, encoding="utf-8")
        for name, source in kernels.items():
            (tmp_path / "kernels" / f"{name}.cu").write_text(source, encoding="utf-8")
        ops.configure(tmp_path)

    return write


def array(*shape: int, dtype: Any = bfloat16) -> Array:
    from pycuda import gpuarray

    return gpuarray.to_gpu(np.arange(np.prod(shape), dtype=np.float32).astype(dtype).reshape(shape))


def f32(*shape: int) -> Array:
    return array(*shape, dtype=np.float32)


def i32(*shape: int) -> Array:
    return array(*shape, dtype=np.int32)


def test_each_launcher_has_the_arguments_of_its_contract() -> None:
    for name, contract in CONTRACTS.items():
        wanted = [spec.name for spec in contract.arrays] + [*contract.floats, "stream"]
        assert list(inspect.signature(getattr(ops, name)).parameters) == wanted


def test_a_launch_passes_pointers_sizes_and_geometry(engine: Callable[..., None]) -> None:
    engine('[argmax]\nblock = ["2 * R"]\ngrid = ["cdiv(N, 4)"]', argmax=RECORDING_ARGMAX)
    out = i32(5)
    ops.argmax(out, f32(5, 9))
    assert out.get().tolist() == [3, 10, 5, 9, 1]
    assert ops.launch_geometry("argmax", {"R": 5, "N": 9}) == Geometry((10, 1, 1), (3, 1, 1), 0)
    larger = i32(6)
    ops.argmax(larger, f32(6, 2))
    assert larger.get().tolist() == [1, 12, 6, 2, 1, 5]


def test_floats_come_after_the_sizes(engine: Callable[..., None]) -> None:
    source = """
#include <cuda_bf16.h>
extern "C" __global__ void rmsnorm(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat16* weight,
                                   int num_tokens, int hidden_size, float eps) {
    out[hidden_size - 1] = __float2bfloat16(eps);
}"""
    engine("[rmsnorm]\nblock = [1]\ngrid = [1]", rmsnorm=source)
    out = array(2, 3)
    ops.rmsnorm(out, array(2, 3), array(3), 0.5)
    assert out.get().astype(np.float32).tolist() == [[0, 1, 0.5], [3, 4, 5]]


def test_vector_add_needs_no_entry(engine: Callable[..., None]) -> None:
    source = """
extern "C" __global__ void vector_add(float* out, const float* x, const float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}"""
    engine(vector_add=source)
    out = f32(1000)
    ops.vector_add(out, f32(1000), f32(1000))
    np.testing.assert_array_equal(out.get(), np.arange(1000) * 2)
    assert ops.launch_geometry("vector_add", {"n": 1000}) == ((256, 1, 1), (4, 1, 1), 0)


def test_a_kernel_includes_headers_beside_it_and_the_kits(engine: Callable[..., None], tmp_path: Path) -> None:
    source = """
#include "own.cuh"
extern "C" __global__ void softmax(float* out, const float* x, int num_rows, int num_columns) {
    out[threadIdx.x] = doubled(warp_sum(x[threadIdx.x]));
}"""
    engine("[softmax]\nblock = [32]\ngrid = [1]", softmax=source)
    header = '#pragma once\n#include "warp.cuh"\n__device__ float doubled(float x) { return 2 * x; }\n'
    (tmp_path / "kernels/own.cuh").write_text(header)
    out = f32(1, 32)
    ops.softmax(out, f32(1, 32))
    assert out.get().tolist() == [[992.0] * 32]


def test_an_empty_output_launches_nothing(engine: Callable[..., None]) -> None:
    engine()  # neither kernels nor entries: a launch would fail
    ops.embedding(array(0, 8), array(5, 8), i32(0))
    ops.residual_add(array(3, 0), array(3, 0))
    ops.argmax(i32(0), f32(0, 9))
    ops.attention(array(0, 4, 8), array(0, 4, 8), array(5, 2, 8), array(5, 2, 8), 1.0)


def test_an_empty_input_is_launched(engine: Callable[..., None]) -> None:
    source = """
#include <cuda_bf16.h>
extern "C" __global__ void matmul_naive(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat16* w, int M,
                                        int N, int K) {
    out[threadIdx.x] = __float2bfloat16(K);
}"""
    engine('[matmul_naive]\nblock = ["M * N"]\ngrid = [1]', matmul=source)
    out = array(2, 3)
    ops.matmul_naive(out, array(2, 0), array(3, 0))
    assert not out.get().astype(np.float32).any()


def test_a_stub_compiles_and_does_nothing(engine: Callable[..., None]) -> None:
    stub = WRITE_ONE.replace(
        "extern __shared__", 'NOT_IMPLEMENTED("s05.1");  // TODO s05.1: hint\n return; extern __shared__'
    )
    engine("[softmax]\nblock = [1]\ngrid = [1]\nshared = 4", softmax=stub)
    out = f32(1, 1)
    ops.softmax(out, f32(1, 1))
    assert out.get() == 0


def test_shared_memory_above_48_kilobytes(engine: Callable[..., None]) -> None:
    engine('[softmax]\nblock = [1]\ngrid = ["R"]\nshared = "4 * N"', softmax=WRITE_ONE)
    for columns in (12_288, 20_000, 13_000):
        out = f32(1, columns)
        ops.softmax(out, f32(1, columns))
        assert out.get()[0, 0] == 1
    with pytest.raises(LaunchConfigError, match=r"launch\.toml \[softmax\] shared: 400000 bytes"):
        ops.softmax(f32(1, 100_000), f32(1, 100_000))


SHAPES = [
    (
        ops.rmsnorm,
        lambda: (array(2, 3), array(2, 4), array(3), 1e-5),
        "rmsnorm: x has shape [2, 4], wanted [T, H] with T = 2, H = 3",
    ),
    (ops.rmsnorm, lambda: (array(2, 3), array(2, 3), array(2, 3), 1e-5), "weight has shape [2, 3], wanted [H]"),
    (ops.residual_add, lambda: (array(0, 3), array(1, 3)), "y has shape [1, 3], wanted [T, H] with T = 0, H = 3"),
    (
        ops.rope,
        lambda: (array(2, 4, 8), array(2, 2, 8), f32(9, 8), f32(9, 8), i32(2)),
        "rope: cos has shape [9, 8], wanted [length, D/2] with D = 8",
    ),
    (
        ops.rope,
        lambda: (array(2, 4, 8), array(2, 2, 8), f32(9, 4), f32(8, 4), i32(2)),
        "sin has shape [8, 4], wanted [length, D/2] with D = 8, length = 9",
    ),
    (
        ops.attention,
        lambda: (array(1, 5, 8), array(1, 5, 8), array(3, 2, 8), array(3, 2, 8), 1.0),
        "attention: Hq must be a multiple of Hkv, got L = 1, Hq = 5, D = 8, S = 3, Hkv = 2",
    ),
    (
        ops.attention,
        lambda: (array(1, 4, 12), array(1, 4, 12), array(3, 2, 12), array(3, 2, 12), 1.0),
        "D must be a multiple of 8, at most 128",
    ),
    (ops.softmax, lambda: (f32(4, 4), f32(4, 8)[:, ::2]), "softmax: x with shape [4, 4] is not contiguous"),
]


@pytest.mark.parametrize(("launcher", "arguments", "wanted"), SHAPES)
def test_a_wrong_shape_is_named(
    launcher: Callable[..., None], arguments: Callable[[], tuple[Any, ...]], wanted: str, engine: Callable[..., None]
) -> None:
    engine()
    with pytest.raises(ShapeError) as caught:
        launcher(*arguments())
    assert wanted in str(caught.value)


def test_a_wrong_type_is_named(engine: Callable[..., None]) -> None:
    engine()
    with pytest.raises(TypeError, match="embedding: ids has dtype int64, wanted int32"):
        ops.embedding(array(2, 8), array(5, 8), array(2, dtype=np.int64))
    with pytest.raises(TypeError, match="silu_mul: up has dtype float32, wanted bfloat16"):
        ops.silu_mul(array(2, 8), array(2, 8), f32(2, 8))
    for wrong in (np.zeros((2, 8), bfloat16), None, 3):
        with pytest.raises(TypeError, match=r"residual_add: y is a \w+, wanted a pycuda.gpuarray.GPUArray"):
            ops.residual_add(array(2, 8), wrong)


def test_what_a_submission_lacks_is_named(engine: Callable[..., None]) -> None:
    engine('[argmax]\nblock = [1]\ngrid = [1]\n[softmax]\nblock = "TODO s05.1"\ngrid = "TODO s05.1"', argmax="")
    with pytest.raises(ops.KernelNotFoundError, match=r"kernels/argmax\.cu has no kernel argmax; those it declares: "):
        ops.argmax(i32(1), f32(1, 1))
    with pytest.raises(NotImplementedError, match=r"s05\.1"):
        ops.softmax(f32(1, 1), f32(1, 1))
    with pytest.raises(LaunchConfigError, match=r"no table \[residual_add\]"):
        ops.residual_add(array(1, 1), array(1, 1))
    engine("[residual_add]\nblock = [1]\ngrid = [1]")
    with pytest.raises(ops.KernelNotFoundError, match=r"kernels/residual_add\.cu cannot be read"):
        ops.residual_add(array(1, 1), array(1, 1))


def test_compile_errors_name_the_students_own_line(engine: Callable[..., None]) -> None:
    from pycuda.driver import CompileError

    engine("[argmax]\nblock = [1]\ngrid = [1]", argmax="\n\n__device__ int nonsense = unknown;\n")
    with pytest.raises(CompileError) as caught:
        ops.argmax(i32(1), f32(1, 1))
    assert "argmax.cu:3" in caught.value.stderr
