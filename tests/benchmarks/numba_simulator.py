"""RMSNorm on Numba's CUDA simulator, with a tree in shared memory; prints processor nanoseconds per element.

Run by emulator.py, with NUMBA_ENABLE_CUDASIM=1. The simulator runs each thread of a block on a thread of the system.
"""

import importlib
import time

import numpy as np

cuda = importlib.import_module("numba.cuda")  # which the kit does not need otherwise
ROWS, WIDTH, THREADS = 2, 2048, 256


@cuda.jit
def rmsnorm_tree(out, x, weight, width, eps):  # type: ignore[no-untyped-def]
    partial = cuda.shared.array(THREADS, np.float32)
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    total = np.float32(0)
    for i in range(thread, width, cuda.blockDim.x):
        total += x[row, i] * x[row, i]
    partial[thread] = total
    half = cuda.blockDim.x // 2
    while half > 0:
        cuda.syncthreads()
        if thread < half:
            partial[thread] += partial[thread + half]
        half //= 2
    cuda.syncthreads()
    scale = 1 / (partial[0] / width + eps) ** 0.5
    for i in range(thread, width, cuda.blockDim.x):
        out[row, i] = x[row, i] * scale * weight[i]


def main() -> None:
    x, weight = np.ones((ROWS, WIDTH), np.float32), np.full(WIDTH, 3, np.float32)
    out = np.zeros_like(x)
    start = time.process_time()
    rmsnorm_tree[ROWS, THREADS](out, x, weight, WIDTH, 1e-5)
    seconds = time.process_time() - start
    np.testing.assert_allclose(out, 3, rtol=1e-4)
    print(seconds / x.size * 1e9)


if __name__ == "__main__":
    main()
