"""One kernel launch in full, through PyCUDA: memory on the GPU, copies there and back, grid and block.

From the next stage on the kit's `given.ops` does this part.
"""

from pathlib import Path

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context that everything below needs)

KERNEL_FILE = Path(__file__).parent / "kernels" / "vector_add.cu"


def vector_add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x + y, added on the GPU by the kernel of KERNEL_FILE.

    x, y and the result: [n] float32; n may be 0. Raises ValueError for other shapes.
    """
    # TODO s00.2: allocate, copy in, launch, copy back
    raise NotImplementedError("s00.2")
