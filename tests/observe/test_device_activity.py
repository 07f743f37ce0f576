"""What a check learns of the device's work, which Python cannot make smaller, and the limit of its memory."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader.checking.api import DeviceActivity, Failure, GemmCall, Out, StudentError, Worker
from grader.worker.connection import Deadlines
from tests.submissions import COPY, write_engine

WORK = """
import sys
import numpy as np
import pycuda.driver as cuda
from given import cublas, ops
from pycuda import gpuarray
from pycuda.compiler import SourceModule

def arrays(*shape):
    return gpuarray.to_gpu(np.ones(shape, np.float32))

class Engine:
    def __init__(self):
        self.x, self.y, self.out = arrays(300), arrays(300), arrays(300)

    def step(self, launches):
        for _ in range(launches):
            ops.vector_add(self.out, self.x, self.y)
        return float(self.out.get()[0])

    def add_own(self):
        kernel = 'extern "C" __global__ void own(float* x) { x[threadIdx.x] = 1; }'
        SourceModule(kernel, no_extern_c=True).get_function("own")(self.x, block=(32, 1, 1))

    def product(self):
        import ml_dtypes
        a, b = (gpuarray.zeros(shape, ml_dtypes.bfloat16) for shape in ((7, 4), (3, 4)))
        c = gpuarray.empty((3, 7), np.float32)
        cublas.gemm_ex(cublas.OP_T, cublas.OP_N, 7, 3, 4, 1.0, a, 4, b, 4, 0.0, c, 7)

    def move(self):
        self.x.set(np.zeros(300, np.float32))
        cuda.memcpy_dtod(self.y.gpudata, self.x.gpudata, 1200)
        cuda.memset_d8(self.y.gpudata, 0, 1200)
        self.y.get()
        self.y.get()

    def hold(self, size):
        self.held = None
        try:
            self.held = cuda.mem_alloc(size)
        except cuda.MemoryError as error:
            return str(error)

    def hold_for_a_moment(self, size):
        del self.held
        cuda.mem_alloc(size)

    def free_bytes(self):
        return cuda.mem_get_info()[0]

    def fail(self):
        raise ValueError("no")

    def die(self):
        import os
        os._exit(1)

def forge():
    sys.modules["pycuda._connection"].current("x").send({"verb": "copied", "to": "host", "bytes": -1000})
"""


def serve(folder: Path, *, empty: bool = False) -> Iterator[Worker]:
    deadlines = Deadlines()
    deadlines.start(60)
    worker = Worker(write_engine(folder, COPY, work=WORK), deadlines, emulated=True, empty=empty)
    yield worker
    worker.end()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    yield from serve(tmp_path)


@pytest.fixture
def empty_worker(tmp_path: Path) -> Iterator[Worker]:
    yield from serve(tmp_path, empty=True)


@pytest.fixture
def method(worker: Worker) -> Callable[..., Any]:
    engine = worker.call("work.Engine")
    return lambda name, *arguments: worker.call(engine.method(name), *arguments)


def observe(
    worker: Worker, method: Callable[..., Any], name: str, *arguments: Any, counted: bool = False
) -> DeviceActivity:
    with worker.observe(counted) as seen:
        method(name, *arguments)
    return seen


def test_launches_are_counted_by_name(worker: Worker, method: Callable[..., Any]) -> None:
    method("step", 5)
    with worker.observe() as seen:
        assert method("step", 40) == 1
        method("add_own")
        method("step", 2)
    assert (seen.launches, seen.launches_of) == (43, {"vector_add": 42, "own": 1})
    assert (seen.copies_to_host, seen.bytes_to_host, seen.copies, seen.kernels) == (2, 2400, 2, ())
    assert (seen.gemms, seen.memsets, seen.device_copies, seen.allocations) == (0, 0, 0, 0)
    assert seen.seconds > 0
    assert observe(worker, method, "step", 1).launches == 1


def test_copies_and_memsets(worker: Worker, method: Callable[..., Any]) -> None:
    seen = observe(worker, method, "move")
    assert (seen.copies_to_device, seen.copies_to_host, seen.device_copies, seen.memsets) == (1, 2, 1, 1)
    assert (seen.bytes_to_device, seen.bytes_to_host, seen.copies) == (1200, 2400, 3)
    assert seen.device_copied_bytes == 1200


def test_products_have_sizes(worker: Worker, method: Callable[..., Any]) -> None:
    seen = observe(worker, method, "product")
    assert seen.gemm_calls == (GemmCall(m=7, n=3, k=4, a_bytes=56, b_bytes=24, c_bytes=84),)
    assert (seen.gemms, seen.gemm_calls[0].bytes, seen.launches, seen.allocations) == (1, 164, 0, 3)


def test_peak_memory_begins_anew(worker: Worker, method: Callable[..., Any]) -> None:
    before = observe(worker, method, "free_bytes").peak_bytes
    assert observe(worker, method, "hold", 50 << 20).peak_bytes == before + (50 << 20)
    assert observe(worker, method, "hold_for_a_moment", 20 << 20).peak_bytes == before + (50 << 20)
    assert observe(worker, method, "free_bytes").peak_bytes == before


def test_counted_launches(worker: Worker, method: Callable[..., Any]) -> None:
    with worker.observe(counted=True) as seen:
        method("step", 100)
        method("add_own")
    assert seen.launches == len(seen.kernels) == 101
    assert {kernel.name for kernel in seen.kernels[:100]} == {"vector_add"}
    name, counters = seen.kernels[100]
    assert (name, counters.store_bytes, counters.threads) == ("own", 128, 32)
    assert tuple(seen.kernels[99].counters.of(1)) == (1200, 0)
    assert seen.kernels[99].counters == worker.count("vector_add", Out(300, np.float32), *[np.zeros(300, "f4")] * 2)[1]
    assert observe(worker, method, "step", 1).kernels == ()


def test_empty_kernels_count_too(empty_worker: Worker) -> None:
    engine = empty_worker.call("work.Engine")
    with empty_worker.observe(counted=True) as seen:
        empty_worker.call(engine.method("step"), 3)
        empty_worker.call(engine.method("product"))
    assert (seen.launches_of, seen.gemms) == ({"vector_add": 3}, 1)
    assert [(kernel.name, kernel.counters.threads, kernel.counters.accesses) for kernel in seen.kernels] == [
        ("vector_add", 512, 0)
    ] * 3


def test_nothing_is_known_before_the_end(worker: Worker, method: Callable[..., Any]) -> None:
    with worker.observe() as seen, pytest.raises(AttributeError, match="launches is known after an observation"):
        _ = seen.launches
    with pytest.raises(StudentError), worker.observe(counted=True):
        method("fail")
    assert observe(worker, method, "step", 1).kernels == ()


def test_a_process_that_ends_takes_its_observation_along(worker: Worker, method: Callable[..., Any]) -> None:
    with pytest.raises(Failure, match="ended itself"), worker.observe(counted=True):
        method("die")
    engine = worker.call("work.Engine")
    with pytest.raises(Failure, match="is not known"), worker.observe(), contextlib.suppress(Failure):
        worker.call(engine.method("die"))


def test_counts_cannot_be_taken_back(worker: Worker) -> None:
    with pytest.raises(Failure), worker.observe():
        worker.call("work.forge")
    worker.call("work.Engine")


def test_memory_can_be_limited(worker: Worker, method: Callable[..., Any]) -> None:
    method("hold", 10 << 20)
    worker.limit_memory(30 << 20)
    method("hold", 20 << 20)
    assert 0 < method("free_bytes") < 10 << 20
    assert "out of memory" in method("hold", 31 << 20)
    method("hold", 20 << 20)
    worker.limit_memory(1000)  # less than is in use
    assert method("free_bytes") == 0
    assert method("step", 1) == 1
    assert "out of memory" in method("hold", 100)
    worker.limit_memory(None)


def test_a_limit_holds_for_new_processes_until_the_check_ends(worker: Worker) -> None:
    worker.limit_memory(1 << 20)
    engine = worker.call("work.Engine")
    assert "out of memory" in worker.call(engine.method("hold"), 1 << 20)
    with pytest.raises(StudentError, match="out of memory"):
        worker.launch("vector_add", Out(1 << 18, np.float32), *[np.zeros(1 << 18, np.float32)] * 2)
    worker.end()
    engine = worker.call("work.Engine")
    assert "out of memory" in worker.call(engine.method("hold"), 1 << 20)
    worker.release()
    engine = worker.call("work.Engine")
    assert worker.call(engine.method("hold"), 1 << 20) is None


def test_the_device_has_24_gib(worker: Worker, method: Callable[..., Any]) -> None:
    assert (24 << 30) - (1 << 20) < method("free_bytes") < 24 << 30
