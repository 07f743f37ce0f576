"""One kernel launch in full, through PyCUDA: memory on the GPU, copies there and back, grid and block.

From the next stage on the kit's `given.ops` does this part.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context that everything below needs)
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

KERNEL_FILE = Path(__file__).parent / "kernels" / "vector_add.cu"


def vector_add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x + y, added on the GPU by the kernel of KERNEL_FILE.

    x, y and the result: [n] float32; n may be 0. Raises ValueError for other shapes.
    """
    # s00.2: allocate, copy in, launch, copy back
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"x and y must be vectors of one length, not of shapes {x.shape} and {y.shape}")
    out = np.empty(x.shape, np.float32)
    if out.size == 0:  # neither an empty allocation nor an empty grid is allowed
        return out
    x_gpu, y_gpu, out_gpu = (cuda.mem_alloc(out.nbytes) for _ in range(3))

    # The copies take the bytes as they lie in memory, so they must be float32 and without gaps.
    cuda.memcpy_htod(x_gpu, np.ascontiguousarray(x, np.float32))
    cuda.memcpy_htod(y_gpu, np.ascontiguousarray(y, np.float32))

    # A scalar travels as the bytes of its NumPy type: np.int32 for the kernel's int.
    threads = 256
    blocks = (out.size + threads - 1) // threads
    _kernel()(out_gpu, x_gpu, y_gpu, np.int32(out.size), block=(threads, 1, 1), grid=(blocks, 1))

    # This copy waits until the kernel has finished.
    cuda.memcpy_dtoh(out, out_gpu)
    return out


@cache
def _kernel() -> cuda.Function:
    """The compiled kernel; compiling takes far longer than a launch, so it is done once."""
    module = SourceModule(KERNEL_FILE.read_text(encoding="utf-8"), no_extern_c=True, options=["-std=c++17"])
    return module.get_function("vector_add")
