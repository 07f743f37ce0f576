"""The linear layer, by cuBLAS: fast matrix products are a field of their own, and engines call a library for them."""

import pycuda.driver as cuda
from given import cublas
from pycuda.gpuarray import GPUArray


def linear(out: GPUArray, x: GPUArray, weight: GPUArray, stream: cuda.Stream | None = None) -> None:
    """out = x · weightᵀ. out [M, N] bf16 or float32, x [M, K] bf16, weight [N, K] bf16, all contiguous.

    Zeros where K = 0. Raises ValueError for shapes that do not fit each other.
    """
    # s06.3: cuBLAS counts by columns, so ask it for the transpose of every matrix
    (num_rows, depth), num_columns = x.shape, weight.shape[0]
    if weight.shape != (num_columns, depth) or out.shape != (num_rows, num_columns):
        raise ValueError(f"out {out.shape} is not x {x.shape} times the transpose of weight {weight.shape}")
    if out.size == 0:
        return
    if depth == 0:
        cuda.memset_d8_async(out.gpudata, 0, out.nbytes, stream)
        return

    # Row-major memory read by columns is the transpose: out[M, N] is outᵀ[N, M] = weight · xᵀ to cuBLAS, where weight
    # (seen as [K, N]) must be transposed back and x (seen as [K, M]) is xᵀ already.
    cublas.gemm_ex(
        cublas.OP_T, cublas.OP_N, num_columns, num_rows, depth,
        1.0, weight, depth, x, depth, 0.0, out, num_columns, stream,
    )  # fmt: skip
