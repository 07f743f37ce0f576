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
    """x + y, added on the GPU. x, y and the result: [n] float32; n may be 0. Raises ValueError for other shapes."""
    raise NotImplementedError("s00.2")  # TODO s00.2: allocate, copy in, launch, copy back
