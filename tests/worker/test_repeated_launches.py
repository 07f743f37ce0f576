"""A kernel that tells its launches apart, by its outputs or by a variable of its own, gains nothing by it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from grader.checking.api import Out, Worker
from grader.observe.findings import MAX_CHECKED
from grader.worker.connection import Deadlines
from tests.submissions import COPY, KERNEL, write_engine

X = np.arange(300, dtype=np.float32)
LONG = np.zeros(MAX_CHECKED + 1, np.float32)
"""Too long for the emulator to look for races, of which the kernels here have some."""
BLOCKS = -(-len(LONG) // 256)
CALLS = "__device__ int blocks_run;\n"
"""A launch on X has two blocks."""


@pytest.fixture
def worker_of(tmp_path: Path) -> Iterator[Callable[[str], Worker]]:
    """Starts a worker whose kernel has this body, and a variable that it may use."""
    workers: list[Worker] = []

    def start(body: str) -> Worker:
        engine = write_engine(tmp_path / str(len(workers)))
        (engine / "kernels/vector_add.cu").write_text(CALLS + KERNEL.format(body=body))
        deadlines = Deadlines()
        deadlines.start(60)
        workers.append(Worker(engine, deadlines, emulated=True))
        return workers[-1]

    yield start
    for worker in workers:
        worker.end()


def test_each_timed_launch_starts_from_fresh_outputs(worker_of: Callable[[str], Worker]) -> None:
    marking = "if (i < n) out[i] = out[i] == out[i] ? 0 : x[i];"  # NaN before the first launch
    out, _ = worker_of(marking).timed("vector_add", Out(300, np.float32), X, X, repeats=3)
    np.testing.assert_array_equal(out, X)


@pytest.mark.parametrize("launches", [1, 3])
def test_outputs_that_a_timed_launch_writes_otherwise_are_returned(
    worker_of: Callable[[str], Worker], launches: int
) -> None:
    ending = f"if (threadIdx.x == 0) atomicAdd(&blocks_run, 1); if (blocks_run > {2 * launches}) return; {COPY}"
    out, _ = worker_of(ending).timed("vector_add", Out(300, np.float32), X, X, repeats=4)
    assert np.isnan(out).any()


def test_variables_of_kernels_begin_again_with_each_check(worker_of: Callable[[str], Worker]) -> None:
    worker = worker_of(f"{COPY} if (i == 0) out[0] = blocks_run; if (threadIdx.x == 0) atomicAdd(&blocks_run, 1);")

    def earlier_blocks() -> float:
        return float(worker.launch("vector_add", Out(len(LONG), np.float32), LONG, LONG)[0])

    assert earlier_blocks() < BLOCKS <= earlier_blocks()
    worker.release()
    assert earlier_blocks() < BLOCKS
