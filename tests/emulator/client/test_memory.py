"""Device memory, devices, contexts and events of the emulated pycuda, as observed on PyCUDA 2026.1."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
import pytest
from pycuda import _driver

from tests.emulator.client.pycuda_rows import ARGUMENT, LOGIC, NO_STREAM, boost, expect_error, extent, frozen, x

pytestmark = pytest.mark.usefixtures("context")


@pytest.fixture
def p() -> Any:
    """Device memory that holds `x`."""
    return drv.to_device(x)


HTOD = "memcpy_htod(unsigned long long dest, pycudaboost::python::api::object src)"
MEMSET32 = "memset_d32(unsigned long long dest, unsigned int data, unsigned long size)"
MEMORY_ERRORS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "alloc 0": (
        lambda p: drv.mem_alloc(0),
        LOGIC,
        "cuMemAlloc failed: invalid argument - 0 bytes wanted; an allocation has at least 1$",
    ),
    "alloc too much": (lambda p: drv.mem_alloc(1 << 50), "pycuda._driver.MemoryError", "cuMemAlloc failed: out of mem"),
    "alloc np.int64": (
        lambda p: drv.mem_alloc(np.int64(8)),
        ARGUMENT,
        boost("pycuda._driver.mem_alloc", "numpy.int64", "mem_alloc(unsigned long)"),
    ),
    "alloc float": (lambda p: drv.mem_alloc(8.0), ARGUMENT, "Python argument types in\n    pycuda._driver.mem_alloc"),
    "alloc negative": (lambda p: drv.mem_alloc(-1), "OverflowError", "can't convert negative value to unsigned int$"),
    "pointer arithmetic": (lambda p: p + 8, "TypeError", "unsupported operand .* 'DeviceAllocation' and 'int'"),
    "htod not contiguous": (lambda p: drv.memcpy_htod(p, x[::2]), "ValueError", "ndarray is not contiguous$"),
    "htod list": (lambda p: drv.memcpy_htod(p, [1]), "TypeError", "a bytes-like object is required, not 'list'$"),
    "htod np.intp": (
        lambda p: drv.memcpy_htod(np.intp(int(p)), x),
        ARGUMENT,
        boost("pycuda._driver.memcpy_htod", "numpy.int64, numpy.ndarray", HTOD),
    ),
    "htod GPUArray": (
        lambda p: drv.memcpy_htod(gpuarray.empty(16, np.float32), x),
        ARGUMENT,
        boost("pycuda._driver.memcpy_htod", "GPUArray, numpy.ndarray", HTOD),
    ),
    "htod one argument": (
        lambda p: drv.memcpy_htod(p),
        ARGUMENT,
        boost("pycuda._driver.memcpy_htod", "DeviceAllocation", HTOD),
    ),
    "htod too large": (lambda p: drv.memcpy_htod(p, np.zeros(17, "f")), LOGIC, "cuMemcpyHtoD failed: invalid argumen"),
    "htod wild": (lambda p: drv.memcpy_htod(64, x), LOGIC, "cuMemcpyHtoD failed: invalid argument$"),
    "htod past the end": (lambda p: drv.memcpy_htod(int(p) + 4, x), LOGIC, "cuMemcpyHtoD failed: invalid argument$"),
    "htod async too large": (
        lambda p: drv.memcpy_htod_async(p, np.zeros(17, "f")),
        LOGIC,
        "cuMemcpyHtoDAsync failed: invalid argument$",
    ),
    "htod stream": (lambda p: drv.memcpy_htod_async(p, x, 3), "TypeError", NO_STREAM),
    "dtoh read-only": (lambda p: drv.memcpy_dtoh(frozen, p), "ValueError", "buffer source array is read-only$"),
    "dtoh bytes": (lambda p: drv.memcpy_dtoh(bytes(3), p), "BufferError", r"Object is not writable\.$"),
    "dtoh not contiguous": (lambda p: drv.memcpy_dtoh(x[::2], p), "ValueError", "ndarray is not contiguous$"),
    "dtoh swapped": (
        lambda p: drv.memcpy_dtoh(p, x),
        ARGUMENT,
        "Python argument types in\n    pycuda._driver.memcpy_dt",
    ),
    "dtoh too large": (lambda p: drv.memcpy_dtoh(np.zeros(17, "f"), p), LOGIC, "cuMemcpyDtoH failed: invalid argumen"),
    "dtod float": (lambda p: drv.memcpy_dtod(p, p, 4.0), ARGUMENT, "Python argument types in"),
    "dtod too large": (lambda p: drv.memcpy_dtod(p, p, 65), LOGIC, "cuMemcpyDtoD failed: invalid argument$"),
    "memset float": (
        lambda p: drv.memset_d32(p, 1.0, 4),
        ARGUMENT,
        boost("pycuda._driver.memset_d32", "DeviceAllocation, float, int", MEMSET32),
    ),
    "memset negative": (lambda p: drv.memset_d32(p, -1, 4), "OverflowError", "can't convert negative value to unsig"),
    "memset 256": (lambda p: drv.memset_d8(p, 256, 4), "OverflowError", "bad numeric conversion: positive overflow$"),
    "memset too large": (lambda p: drv.memset_d32(p, 0, 17), LOGIC, "cuMemsetD32 failed: invalid argument$"),
    "pagelocked float": (lambda p: drv.pagelocked_empty((4.0,), "f"), "TypeError", extent("long", "float")),
    "pagelocked np.int64": (
        lambda p: drv.pagelocked_empty((np.int64(4),), "f"),
        "TypeError",
        extent("long", r"numpy\.int64"),
    ),
    "like a list": (lambda p: drv.mem_alloc_like([1]), "AttributeError", "'list' object has no attribute 'nbytes'$"),
    "device 5": (lambda p: drv.Device(5), LOGIC, "cuDeviceGet failed: invalid device ordinal$"),
    "device attribute": (lambda p: drv.Device(0).nothing, "AttributeError", ".*has no attribute 'NOTHING'$"),
    "detach twice": (
        lambda p: [drv.Context.detach(context := drv.Device(0).retain_primary_context()), context.detach()],
        LOGIC,
        "context::detach failed: invalid device context - cannot detach from invalid context$",
    ),
}


@pytest.mark.parametrize("row", MEMORY_ERRORS)
def test_memory_errors(row: str, p: Any) -> None:
    call, kind, text = MEMORY_ERRORS[row]
    expect_error(lambda: call(p), kind, text)


def test_freed_memory(p: Any) -> None:
    p.free()
    expect_error(p.free, LOGIC, "device_allocation::free failed: invalid resource handle$")
    expect_error(lambda: drv.memcpy_htod(p, x), LOGIC, "cuMemcpyHtoD failed: invalid argument$")


def test_exceptions_have_pycudas_classes() -> None:
    for name in ("LogicError", "LaunchError", "MemoryError", "RuntimeError"):
        assert issubclass(getattr(drv, name), drv.Error)
        assert not issubclass(getattr(drv, name), MemoryError | RuntimeError | TypeError)
    assert issubclass(drv.CompileError, drv.Error)
    assert issubclass(_driver.ArgumentError, TypeError)
    classes = {700: "LogicError", 716: "LogicError", 710: "LogicError", 719: "LaunchError", 701: "LaunchError"}
    classes |= {702: "LaunchError", 209: "RuntimeError", 100: "RuntimeError", 2: "MemoryError", 999: "Error"}
    for code, name in classes.items():
        assert type(_driver.failure("cuX", code, "text")) is getattr(drv, name)


def test_copies_keep_bytes_and_order(p: Any) -> None:
    assert int(p) % 256 == 0
    assert hex(p) == hex(int(p))
    back = np.empty_like(x)
    drv.memcpy_dtoh(back, p)
    assert (back == x).all()
    drv.memcpy_htod(int(p) + 4, x[:3])
    assert (drv.from_device(p, (4,), np.float32) == [0, 0, 1, 2]).all()
    q = drv.mem_alloc_like(x)
    drv.memcpy_dtod(q, p, x.nbytes)
    assert (drv.from_device_like(q, x)[1:4] == [0, 1, 2]).all()
    fortran = np.asfortranarray(x.reshape(4, 4))
    drv.memcpy_htod(p, fortran)
    assert (drv.from_device(p, (4, 4), np.float32) == fortran.T).all()
    for source in (b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), np.frombuffer(b"abcd", "u4")[0]):
        drv.memcpy_htod_async(dest=p, src=source, stream=drv.Stream())
        assert drv.from_device(p, 4, np.uint8).tobytes() == b"abcd"
    rounded = x.astype(ml_dtypes.bfloat16)
    drv.memcpy_htod(p, rounded)
    assert (drv.from_device_like(p, rounded) == rounded).all()
    drv.memcpy_htod(p, np.zeros((0, 3), "f"))
    assert bytes(p.as_buffer(4)) == rounded[:2].tobytes()


@pytest.mark.parametrize(("name", "dtype"), [("memset_d8", np.uint8), ("memset_d16", np.uint16), ("memset_d32", "u4")])
def test_memset_counts_elements(name: str, dtype: Any) -> None:
    q = drv.to_device(np.zeros(8, dtype))
    getattr(drv, name)(q, 201, 5)
    getattr(drv, f"{name}_async")(q, 7, 1, drv.Stream())
    assert drv.from_device(q, 8, dtype).tolist() == [7, 201, 201, 201, 201, 0, 0, 0]


def test_memory_is_freed_with_its_last_reference() -> None:
    gc.collect()
    before = drv.mem_get_info()[0]
    kept = [drv.mem_alloc(1 << 20) for _ in range(4)]
    assert drv.mem_get_info()[0] <= before - (4 << 20)
    del kept
    gc.collect()
    assert drv.mem_get_info()[0] == before


def test_host_arrays() -> None:
    for array in (drv.pagelocked_empty((2, 3), np.float32, order="F"), drv.aligned_empty((2, 3), "f", "F")):
        assert array.flags.f_contiguous
        assert array.ctypes.data % 4096 == 0
    assert type(drv.pagelocked_empty(4, np.float32).base).__name__ == "PagelockedHostAllocation"
    assert (drv.pagelocked_zeros((3,), ml_dtypes.bfloat16) == 0).all()
    assert drv.aligned_zeros_like(x, alignment=64).tolist() == [0] * 16
    assert drv.pagelocked_empty((0, 3), np.float32).shape == (0, 3)
    with pytest.raises(ValueError, match="could not detect array order"):
        drv.aligned_empty_like(x[::2])
    assert drv.register_host_memory(x).tolist() == x.tolist()


# Devices, contexts, events


def test_device() -> None:
    device = drv.Context.get_device()
    assert drv.Device.count() == 1
    assert "emulated" in device.name().lower()
    assert device.compute_capability() == (8, 6)
    assert device.total_memory() == drv.mem_get_info()[1]
    assert device.warp_size == device.get_attribute(drv.device_attribute.WARP_SIZE) == 32
    assert device.max_threads_per_block == 1024
    assert device.max_shared_memory_per_block_optin == 99 * 1024
    assert device.get_attributes()[drv.device_attribute.MULTIPROCESSOR_COUNT] >= 1
    assert drv.get_version() >= (12,)


def test_contexts_are_a_stack_of_the_thread() -> None:
    first = drv.Context.get_current()
    second = drv.Device(0).make_context()
    assert drv.Context.get_current() is second
    second.detach()
    assert drv.Context.get_current() is first
    expect_error(second.push, LOGIC, "cuCtxPushCurrent failed: invalid device context$")
    found: list[Any] = []

    def other_thread() -> None:
        for call in (lambda: drv.mem_alloc(4), drv.Context.synchronize, drv.Context.pop):
            try:
                call()
            except drv.LogicError as error:
                found.append(str(error))
        first.push()
        found.append(drv.from_device(drv.to_device(x), 16, np.float32).tolist())
        drv.Context.pop()

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert found == [
        "cuMemAlloc failed: invalid device context",
        "cuCtxSynchronize failed: invalid device context",
        "context::pop failed: invalid device context - cannot pop non-current context",
        x.tolist(),
    ]


def test_events_and_streams(p: Any) -> None:
    stream, start, end = drv.Stream(), drv.Event(), drv.Event(drv.event_flags.BLOCKING_SYNC)
    expect_error(lambda: start.record(3), "TypeError", NO_STREAM)
    expect_error(lambda: end.time_since(start), LOGIC, "cuEventElapsedTime failed: invalid resource handle$")
    assert start.record(stream) is start
    drv.memset_d32_async(p, 1, 16, stream)
    assert end.record(stream).synchronize() is end
    assert end.query() is True
    assert 0 < end.time_since(start) < 10_000
    assert start.time_till(end) == end.time_since(start) == -start.time_since(end)
    stream.wait_for_event(end)
    stream.synchronize()
    assert stream.is_done()
    assert isinstance(stream.handle, int)
