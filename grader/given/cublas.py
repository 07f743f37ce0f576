"""cublasGemmEx for bf16 matrices, the one call of cuBLAS that an engine needs.

cuBLAS stores matrices by columns: element (i, j) of a matrix with leading dimension ld lies at i + j · ld. On the
emulated GPU the same call reaches the emulator's own product.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_dtypes import bfloat16

try:  # lies beside the emulated pycuda, and only there
    import emulated_cublas
except ModuleNotFoundError:
    emulated_cublas = None

if TYPE_CHECKING:
    from pycuda.driver import Stream
    from pycuda.gpuarray import GPUArray

OP_N = 0
"""Take the operand as it is stored."""
OP_T = 1
"""Take the operand's transpose."""

_BFLOAT16, _FLOAT32 = np.dtype(bfloat16), np.dtype(np.float32)
_DATA_TYPES = {_FLOAT32: 0, _BFLOAT16: 14}  # cudaDataType
_COMPUTE_32F = 68
_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
_GEMM_DEFAULT = -1
_STATUS = {
    1: ("NOT_INITIALIZED", "the library could not be set up on this GPU"),
    3: ("ALLOC_FAILED", "no GPU memory is left for the library itself"),
    7: ("INVALID_VALUE", "a size is negative or a leading dimension is smaller than its matrix's rows"),
    8: ("ARCH_MISMATCH", "this GPU is too old for bf16 products"),
    11: ("MAPPING_ERROR", "the GPU's memory could not be reached"),
    13: ("EXECUTION_FAILED", "the product failed on the GPU, perhaps after an error in an earlier kernel"),
    14: ("INTERNAL_ERROR", "the library failed"),
    15: ("NOT_SUPPORTED", "this combination of types or sizes is not supported"),
}


class CublasError(RuntimeError):
    """A call of cuBLAS failed; the message gives the status's name and what it means."""


def gemm_ex(
    trans_a: int,
    trans_b: int,
    m: int,
    n: int,
    k: int,
    alpha: float,
    a: GPUArray,
    lda: int,
    b: GPUArray,
    ldb: int,
    beta: float,
    c: GPUArray,
    ldc: int,
    stream: Stream | None = None,
) -> None:
    """c = alpha · op(a) · op(b) + beta · c, column by column: op(a) is m × k, op(b) k × n, c m × n.

    op(a) is a (stored with lda ≥ m) for OP_N, its transpose (a stored with lda ≥ k) for OP_T; b the same. a and b are
    bf16, c bf16 or float32; their shapes are not looked at. Sums are float32 throughout. With beta = 0 c is never read.
    Raises TypeError for other dtypes, CublasError for what cuBLAS refuses.
    """
    for name, array, allowed in (("a", a, [_BFLOAT16]), ("b", b, [_BFLOAT16]), ("c", c, [_BFLOAT16, _FLOAT32])):
        if getattr(array, "dtype", None) not in allowed or not hasattr(array, "gpudata"):
            found = f"a {type(array).__name__} of dtype {getattr(array, 'dtype', 'none')}"
            raise TypeError(f"gemm_ex: {name} is {found}, wanted a GPUArray of {' or '.join(map(str, allowed))}")
    if emulated_cublas is not None:
        try:
            emulated_cublas.gemm_ex(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream)
        except emulated_cublas.CublasError as error:
            raise CublasError(str(error)) from None
        return
    from pycuda.driver import Context

    handle = _handle(Context.get_current().handle)
    _call("cublasSetStream_v2", handle, ctypes.c_void_p(0 if stream is None else stream.handle))
    _call(
        "cublasGemmEx", handle, trans_a, trans_b, m, n, k,
        ctypes.byref(ctypes.c_float(alpha)), *_operand(a, lda), *_operand(b, ldb),
        ctypes.byref(ctypes.c_float(beta)), *_operand(c, ldc), _COMPUTE_32F, _GEMM_DEFAULT,
    )  # fmt: skip


def _operand(array: GPUArray, leading_dimension: int) -> tuple[ctypes.c_void_p, int, int]:
    pointer = 0 if array.gpudata is None else int(array.gpudata)  # an empty array has no memory
    return ctypes.c_void_p(pointer), _DATA_TYPES[array.dtype], leading_dimension


@cache
def _handle(context: int) -> ctypes.c_void_p:
    """One library handle per context (given by its address, as the key): creating one takes milliseconds."""
    handle = ctypes.c_void_p()
    _call("cublasCreate_v2", ctypes.byref(handle))
    # Partial sums of a product that is split along k would otherwise be rounded to bf16 before they are added.
    _call("cublasSetMathMode", handle, _DISALLOW_REDUCED_PRECISION_REDUCTION)
    return handle


def _call(function: str, *arguments: Any) -> None:
    status = getattr(_library(), function)(*arguments)
    if status:
        name, meaning = _STATUS.get(status, (str(status), "see cuBLAS's documentation"))
        raise CublasError(f"{function} failed with CUBLAS_STATUS_{name}: {meaning}")


@cache
def _library() -> ctypes.CDLL:
    """libcublas, as pip's wheels install it or from the system."""
    names = ["libcublas.so.13", "libcublas.so.12"]
    with suppress(ImportError, RuntimeError):  # cuda-pathfinder is not installed, or has not found it either
        from cuda.pathfinder import load_nvidia_dynamic_lib

        names.insert(0, str(load_nvidia_dynamic_lib("cublas").abs_path))
    for name in names:
        with suppress(OSError):
            return ctypes.CDLL(name)
    raise CublasError("libcublas was not found: install the CUDA Toolkit, or run `make setup EXTRAS=gpu`")
