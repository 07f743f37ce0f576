"""The linear layer, by cuBLAS: fast matrix products are a field of their own, and engines call a library for them."""

import pycuda.driver as cuda
from pycuda.gpuarray import GPUArray


def linear(out: GPUArray, x: GPUArray, weight: GPUArray, stream: cuda.Stream | None = None) -> None:
    """out = x · weightᵀ. out [M, N] bf16 or float32, x [M, K] bf16, weight [N, K] bf16, all contiguous.

    Zeros where K = 0. Raises ValueError for shapes that do not fit each other.
    """
    # TODO s06.3: cuBLAS counts by columns, so ask it for the transpose of every matrix
    raise NotImplementedError("s06.3")
