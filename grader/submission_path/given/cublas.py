"""cublasGemmEx for bf16 matrices, the one call of cuBLAS that an engine needs.

cuBLAS stores matrices by columns: element (i, j) of a matrix with leading dimension ld lies at i + j · ld. On the
emulated GPU the same call reaches the emulator's own product.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache, lru_cache
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
_INPUT_TYPES = {_BFLOAT16: 14}  # cudaDataType
_DATA_TYPES = {_BFLOAT16: 14, _FLOAT32: 0}
_COMPUTE_32F = 68
_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
_GEMM_DEFAULT = -1
_INT, _POINTER = ctypes.c_int, ctypes.c_void_p
_SCALAR = ctypes.POINTER(ctypes.c_float)
_GEMM_EX_TYPES: list[Any] = (
    [_POINTER, _INT, _INT, _INT, _INT, _INT, _SCALAR]
    + [_POINTER, _INT, _INT] * 2
    + [_SCALAR, _POINTER, _INT, _INT, _INT, _INT]
)
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
    try:
        a_type, b_type, c_type = _INPUT_TYPES[a.dtype], _INPUT_TYPES[b.dtype], _DATA_TYPES[c.dtype]
        pointers = a.gpudata or 0, b.gpudata or 0, c.gpudata or 0  # an empty array has no memory
    except (AttributeError, KeyError, TypeError):
        raise _wrong_operand(a, b, c) from None
    if emulated_cublas is not None:
        try:
            emulated_cublas.gemm_ex(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream)
        except emulated_cublas.CublasError as error:
            raise CublasError(str(error)) from None
        return
    from pycuda.driver import Context  # noqa: PLC0415  (extra gpu)

    library = _handle(Context.get_current().handle)
    library.use(0 if stream is None else stream.handle)
    # An engine calls this a hundred times a step: the types are declared once, so that ctypes converts plain integers.
    status = library.gemm_ex(
        library.handle, trans_a, trans_b, m, n, k, _constant(alpha), int(pointers[0]), a_type, lda,
        int(pointers[1]), b_type, ldb, _constant(beta), int(pointers[2]), c_type, ldc, _COMPUTE_32F, _GEMM_DEFAULT,
    )  # fmt: skip
    if status:
        raise _failure("cublasGemmEx", status)


def _wrong_operand(a: object, b: object, c: object) -> TypeError:
    """Says which of the operands is no array of a type that is allowed there."""
    for name, array, allowed in (("a", a, _INPUT_TYPES), ("b", b, _INPUT_TYPES), ("c", c, _DATA_TYPES)):
        dtype = getattr(array, "dtype", None)
        if not hasattr(array, "gpudata") or dtype not in allowed:
            found = f"a {type(array).__name__} of dtype {dtype or 'none'}"
            return TypeError(f"gemm_ex: {name} is {found}, wanted a GPUArray of {' or '.join(map(str, allowed))}")
    return TypeError("gemm_ex: the operands must be GPUArrays")


class _Handle:
    """The library's state for one context: creating one takes milliseconds."""

    def __init__(self) -> None:
        self.gemm_ex = _library().cublasGemmEx
        self.gemm_ex.argtypes = _GEMM_EX_TYPES
        self.handle = ctypes.c_void_p()
        self._stream: int | None = None
        _call("cublasCreate_v2", ctypes.byref(self.handle))
        # Partial sums of a product that is split along k would otherwise be rounded to bf16 before they are added.
        _call("cublasSetMathMode", self.handle, _DISALLOW_REDUCED_PRECISION_REDUCTION)

    def use(self, stream: int) -> None:
        """Launch on this stream from now on."""
        if stream != self._stream:
            _call("cublasSetStream_v2", self.handle, ctypes.c_void_p(stream))
            self._stream = stream


@cache
def _handle(context: int) -> _Handle:
    """One for each context, which is given by its address, as the key."""
    return _Handle()


@lru_cache(64)
def _constant(value: float) -> Any:
    """A float32 in host memory, passed by its address."""
    return ctypes.pointer(ctypes.c_float(value))


def _call(function: str, *arguments: Any) -> None:
    status = getattr(_library(), function)(*arguments)
    if status:
        raise _failure(function, status)


def _failure(function: str, status: int) -> CublasError:
    name, meaning = _STATUS.get(status, (str(status), "see cuBLAS's documentation"))
    return CublasError(f"{function} failed with CUBLAS_STATUS_{name}: {meaning}")


@cache
def _library() -> ctypes.CDLL:
    """libcublas, as pip's wheels install it or from the system."""
    names = ["libcublas.so.13", "libcublas.so.12"]
    with suppress(ImportError, RuntimeError):  # cuda-pathfinder is not installed, or has not found it either
        from cuda.pathfinder import load_nvidia_dynamic_lib  # noqa: PLC0415  (extra gpu)

        names.insert(0, str(load_nvidia_dynamic_lib("cublas").abs_path))
    for name in names:
        with suppress(OSError):
            return ctypes.CDLL(name)
    raise CublasError("libcublas was not found: install the CUDA Toolkit, or run `make setup EXTRAS=gpu`")
