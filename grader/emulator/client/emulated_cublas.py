"""cublasGemmEx on the emulated GPU; the kit's cublas module finds it beside the emulated pycuda."""

from pycuda._connection import current
from pycuda.driver import Stream
from pycuda.gpuarray import GPUArray


class CublasError(RuntimeError):
    """cuBLAS refuses the call."""


def gemm_ex(
    trans_a: int, trans_b: int, m: int, n: int, k: int, alpha: float, a: GPUArray, lda: int, b: GPUArray, ldb: int,
    beta: float, c: GPUArray, ldc: int, stream: Stream | None = None,
) -> None:  # fmt: skip
    """c = alpha · op(a) · op(b) + beta · c by columns; a and b bf16, c bf16 or float32, sums in float32.

    trans_a, trans_b: 0 takes the operand as stored, 1 its transpose. Raises CublasError for sizes that cuBLAS refuses;
    operands that leave their memory are reported at the next synchronisation.
    """
    rows_a, rows_b = (k if trans_a else m), (n if trans_b else k)
    for name, leading, rows in (("lda", lda, rows_a), ("ldb", ldb, rows_b), ("ldc", ldc, m)):
        if min(m, n, k) < 0 or leading < max(1, rows):
            raise CublasError(
                "cublasGemmEx failed with CUBLAS_STATUS_INVALID_VALUE: a size is negative or a leading dimension is "
                f"smaller than its matrix's rows (m = {m}, n = {n}, k = {k}, {name} = {leading} for {rows} rows)"
            )
    message = {"verb": "gemm", "trans_a": bool(trans_a), "trans_b": bool(trans_b), "m": m, "n": n, "k": k}
    message |= {"alpha": alpha, "beta": beta, "lda": lda, "ldb": ldb, "ldc": ldc}
    message |= {name: int(array.gpudata or 0) for name, array in (("a", a), ("b", b), ("c", c))}
    current("cublasGemmEx").send(message | {"c_type": "f32" if c.dtype == "float32" else "bf16"})
