"""The numbers of 00-vector-add.md."""

from collections.abc import Iterator

import numpy as np

from grader.oracle.operations import vector_add
from tests.handouts.formats import num

LARGEST_BLOCK = 1024


def threads() -> Iterator[str]:
    yield f"A block has at most {num(LARGEST_BLOCK)} threads."
    yield "number of this thread's block, 0 to `gridDim.x` − 1"
    yield "number of this thread within its block, 0 to `blockDim.x` − 1"


def ten_elements() -> Iterator[str]:
    n, block = 10, 4
    grid = (n + 3) // 4
    last, thread = divmod(n - 1, block)
    idle = [i for i in range(grid * block) if i >= n]
    yield f"""
        The figure's example in words: n = {n} and blocks of {block} threads. Ten elements need {n} / {block} =
        {n / block} blocks, rounded up {grid}, that is {grid * block} threads. Thread {thread} of block {last} computes
        element {last}·{block} + {thread} = {last * block + thread}, the last. Threads {idle[0] % block} and
        {idle[1] % block} of block {idle[0] // block} have i = {idle[0]} and {idle[1]};
    """
    yield "Rounding up in whole numbers: `(n + 3) // 4` for blocks of 4, `(n + threads - 1) // threads` in general."


def rounding_up() -> Iterator[str]:
    threads = 256
    few, many = (((n + threads - 1) // threads, n) for n in (1_000, 1_000_000))
    yield f"""
        With blocks of {threads}, {num(few[1])} elements need {few[0]} blocks ({num(few[0] * threads)} threads,
        {few[0] * threads - few[1]} idle) and {num(many[1])} need {num(many[0])} ({num(many[0] * threads)} threads,
        {many[0] * threads - many[1]} idle).
    """


def steps() -> Iterator[str]:
    """Nothing is computed here: they are the steps' numbers."""
    yield """
        The second figure in words: (1) reserve device memory for x, y and out; (2) copy x and y to the device; (3)
        start the kernel, which reads `x_gpu` and `y_gpu` and writes `out_gpu`; (4) copy `out_gpu` back into a NumPy
        array. Step 1 returns when the memory is there, step 2 when x and y may be changed again, step 4 when the result
        is in the array. Step 3 only starts the work.
    """


def programs() -> Iterator[str]:
    x = np.arange(10, dtype=np.float32)
    yield f"# 1: room for {x.nbytes} bytes on the GPU"
    yield f"print(out)  # {np.float32(2) * x}"
    assert np.isnan(vector_add(*np.asarray([[np.inf], [-np.inf]], np.float32)).values)  # ∞ − ∞


def mistakes() -> Iterator[str]:
    n, block = 10, 4
    assert n < -(-n // block) * block  # such a thread is there
    yield f"n = {n}, blocks of {block}: with `i <= n` thread {n} writes `out[{n}]`, which is not yours"
    n, block = 257, 256
    yield f"n = {n}: {n} // {block} = {n // block} block, so element {n // block * block} has no thread"
    yield f"| block 1, thread 0 must give {1 * block + 0} |"
    yield f"`np.int32(n).nbytes` is {np.int32(n).nbytes}, `np.int64(n).nbytes` is {np.int64(n).nbytes}"
    yield f"`np.arange(4)` has {np.arange(4).itemsize} bytes per element"


EXAMPLES = (threads, ten_elements, rounding_up, steps, programs, mistakes)
