"""An alternative solution, written from the handouts alone: the linear layer, by cuBLAS."""

import pycuda.driver as cuda
from given import cublas
from pycuda.gpuarray import GPUArray


def linear(out: GPUArray, x: GPUArray, weight: GPUArray, stream: cuda.Stream | None = None) -> None:
    """out = x · weightᵀ. out [M, N] bf16 or float32, x [M, K] bf16, weight [N, K] bf16, all contiguous.

    K = 0 gives zeros. Raises ValueError for shapes that do not fit each other.
    """
    rows, columns, depth = _sizes(out, x, weight)
    if out.size == 0:
        return
    if depth == 0:
        cuda.memset_d8_async(out.gpudata, 0, out.nbytes, stream)
        return
    # Read by columns, the bytes of out are outᵀ = weight · xᵀ; those of weight are weightᵀ, to be transposed back, and
    # those of x are xᵀ already.
    cublas.gemm_ex(
        cublas.OP_T, cublas.OP_N, columns, rows, depth, 1.0, weight, depth, x, depth, 0.0, out, columns, stream
    )


def _sizes(out: GPUArray, x: GPUArray, weight: GPUArray) -> tuple[int, int, int]:
    shapes = tuple(out.shape), tuple(x.shape), tuple(weight.shape)
    if any(len(shape) != 2 for shape in shapes):
        raise ValueError(f"out, x and weight must be matrices, got the shapes {shapes}")
    (rows, columns), (x_rows, depth), (outputs, inputs) = shapes
    if (x_rows, outputs, inputs) != (rows, columns, depth):
        raise ValueError(f"out [M, N], x [M, K] and weight [N, K] do not fit each other: {shapes}")
    return int(rows), int(columns), int(depth)
