"""Device and page-locked memory: allocation, copies, memset. Copies block, also those named async."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pycuda import _connection
from pycuda._connection import current
from pycuda._driver import INVALID_HANDLE, POINTER, DevicePointer, boost, failure, refuse_value

__all__ = """
AlignedHostAllocation DeviceAllocation HostAllocation PagelockedHostAllocation Stream aligned_empty aligned_empty_like
aligned_zeros aligned_zeros_like from_device from_device_like mem_alloc mem_alloc_like mem_get_info memcpy_dtod
memcpy_dtod_async memcpy_dtoh memcpy_dtoh_async memcpy_htod memcpy_htod_async memset_d8 memset_d8_async memset_d16
memset_d16_async memset_d32 memset_d32_async pagelocked_empty pagelocked_empty_like pagelocked_zeros
pagelocked_zeros_like register_host_memory to_device
""".split()  # noqa: SIM905
_SIZE = "unsigned long size"


class Stream:
    """A queue of work. The emulated device has one: streams keep the order in which their work was given."""

    def __init__(self, flags: int = 0) -> None:
        current("cuStreamCreate")
        self.handle = id(self)

    def synchronize(self) -> None:
        current("cuStreamSynchronize").synchronize("cuStreamSynchronize")

    def is_done(self) -> bool:
        current("cuStreamQuery").synchronize("cuStreamQuery")
        return True

    def wait_for_event(self, event: Any) -> None:
        current("cuStreamWaitEvent")


def check_stream(stream: Any) -> None:
    if stream is not None and not isinstance(stream, Stream):
        refuse_value(stream, "pycuda::stream")


class DeviceAllocation(DevicePointer):
    """Device memory, freed with this object or by `free`; `int()` is its address."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer
        self._valid = True

    def __int__(self) -> int:
        return self._pointer

    __index__ = __int__

    def free(self) -> None:
        """Give the memory back now; raises LogicError when that was done before."""
        if not self._valid:
            raise failure("device_allocation::free", INVALID_HANDLE)
        self._valid = False
        _connection.initialized("cuMemFree").free(self._pointer)

    def as_buffer(self, size: int, offset: int = 0) -> memoryview:
        """The memory itself, readable and writable on the host."""
        return current("cuMemcpyDtoH").bytes_to_copy("cuMemcpyDtoH", self._pointer + offset, size, to="host")

    def __del__(self) -> None:
        if self._valid:
            _connection.free_quietly(self._pointer)


@boost("mem_alloc(unsigned long)")
def mem_alloc(size: int) -> DeviceAllocation:
    connection = current("cuMemAlloc")
    answer = connection.request("cuMemAlloc", {"verb": "alloc", "bytes": size})
    if error := answer.get("error"):
        raise failure("cuMemAlloc", error["code"], error["text"], error["detail"])
    connection.register(answer["ptr"], size)
    return DeviceAllocation(answer["ptr"])


def mem_alloc_like(array: Any) -> DeviceAllocation:
    return mem_alloc(array.nbytes)


def mem_get_info() -> tuple[int, int]:
    """(free, total) bytes of device memory."""
    answer = current("cuMemGetInfo").request("cuMemGetInfo", {"verb": "memory"})
    return answer["free"], answer["total"]


# Copies


def host_bytes(host: Any, writable: bool) -> memoryview:
    """The bytes of an object with a buffer, in their order in memory; the object must be contiguous."""
    if isinstance(host, np.ndarray):
        if not (host.flags.c_contiguous or host.flags.f_contiguous):
            raise ValueError("ndarray is not contiguous")
        if writable and not host.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return memoryview(host.ravel(order="K").view(np.uint8))
    if isinstance(host, np.generic):
        host = host.tobytes()
    try:
        view = memoryview(host)
    except TypeError:
        raise TypeError(f"a bytes-like object is required, not '{type(host).__name__}'") from None
    if writable and view.readonly:
        raise BufferError("Object is not writable.")
    return view.cast("B") if view.nbytes else memoryview(b"")


def _to_device(function: str, destination: int, source: Any) -> None:
    data = host_bytes(source, writable=False)
    current(function).bytes_to_copy(function, destination, len(data), to="device")[:] = data


def _to_host(function: str, destination: Any, source: int) -> None:
    data = host_bytes(destination, writable=True)
    data[:] = current(function).bytes_to_copy(function, source, len(data), to="host")


def _on_device(function: str, destination: int, source: int, size: int) -> None:
    connection = current(function)
    if size:
        connection.check_range(function, destination, size)
        connection.check_range(function, source, size)
        connection.send({"verb": "copy", "target": destination, "source": source, "bytes": size})


def _set(width: int, function: str, pointer: int, value: int, count: int) -> None:
    connection = current(function)
    if count:
        connection.check_range(function, pointer, width * count)
        connection.send({"verb": "memset", "ptr": pointer, "width": width, "value": value, "count": count})


def _pair(signature: str, function: str, work: Callable[..., None]) -> tuple[Callable[..., None], Callable[..., None]]:
    """A driver function and its _async form, which takes a stream besides."""

    @boost(signature)
    def plain(*arguments: Any) -> None:
        work(function, *arguments)

    @boost(signature.replace("(", "_async(").replace(")", ", object stream=None)"))
    def in_stream(*arguments: Any) -> None:
        *rest, stream = arguments
        check_stream(stream)
        work(f"{function}Async", *rest)

    return plain, in_stream


memcpy_htod, memcpy_htod_async = _pair(f"memcpy_htod({POINTER} dest, object src)", "cuMemcpyHtoD", _to_device)
memcpy_dtoh, memcpy_dtoh_async = _pair(f"memcpy_dtoh(object dest, {POINTER} src)", "cuMemcpyDtoH", _to_host)
memcpy_dtod, memcpy_dtod_async = _pair(
    f"memcpy_dtod({POINTER} dest, {POINTER} src, {_SIZE})", "cuMemcpyDtoD", _on_device
)
(memset_d8, memset_d8_async), (memset_d16, memset_d16_async), (memset_d32, memset_d32_async) = (
    _pair(
        f"memset_d{bits}({POINTER} dest, unsigned {kind} data, {_SIZE})",
        f"cuMemsetD{bits}",
        functools.partial(_set, bits // 8),
    )
    for bits, kind in ((8, "char"), (16, "short"), (32, "int"))
)


def to_device(buffer: Any) -> DeviceAllocation:
    """Allocate memory for a copy of a host buffer."""
    data = memoryview(buffer).tobytes()
    allocation = mem_alloc(len(data))
    memcpy_htod(allocation, data)
    return allocation


def from_device(pointer: Any, shape: Any, dtype: Any, order: Any = "C") -> np.ndarray:
    """A new host array of this shape and dtype, filled from a device pointer."""
    result = np.empty(shape, dtype, order)
    memcpy_dtoh(result, pointer)
    return result


def from_device_like(pointer: Any, other: np.ndarray) -> np.ndarray:
    result = np.empty_like(other)
    memcpy_dtoh(result, pointer)
    return result


# Page-locked and aligned host memory: ordinary memory here, from a page's start on


class HostAllocation(bytearray):
    """The memory of a page-locked or aligned array, which is its `base`."""


PagelockedHostAllocation = type("PagelockedHostAllocation", (HostAllocation,), {})
AlignedHostAllocation = type("AlignedHostAllocation", (HostAllocation,), {})


def _host_array(kind: type[HostAllocation], shape: Any, dtype: Any, order: Any, alignment: int) -> np.ndarray:
    extents = shape if isinstance(shape, tuple | list) else (shape,)
    for extent in extents:
        if not isinstance(extent, int):
            refuse_value(extent, "long")
    dtype = np.dtype(dtype)
    memory = kind(math.prod(extents) * dtype.itemsize + alignment)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % alignment
    return np.ndarray(extents, dtype, memory, start, order=order)


def pagelocked_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
    """A host array of this shape and dtype that a GPU could copy from without the CPU."""
    current("cuMemHostAlloc")
    return _host_array(PagelockedHostAllocation, shape, dtype, order, 4096)


def aligned_empty(shape: Any, dtype: Any, order: str = "C", alignment: int = 4096) -> np.ndarray:
    """A host array of this shape and dtype whose address is a multiple of `alignment`."""
    return _host_array(AlignedHostAllocation, shape, dtype, order, alignment)


def _variants(empty: Callable[..., np.ndarray]) -> tuple[Callable[..., np.ndarray], ...]:
    """What belongs to a function …_empty: …_zeros, …_empty_like and …_zeros_like."""

    def zeros(shape: Any, dtype: Any, order: str = "C", *options: int, **keywords: int) -> np.ndarray:
        result = empty(shape, dtype, order, *options, **keywords)
        result.fill(0)
        return result

    def like(make: Callable[..., np.ndarray], array: np.ndarray, *options: int, **keywords: int) -> np.ndarray:
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise ValueError("could not detect array order")
        order = "C" if array.flags.c_contiguous else "F"
        return make(array.shape, array.dtype, order, *options, **keywords)

    return zeros, functools.partial(like, empty), functools.partial(like, zeros)


pagelocked_zeros, pagelocked_empty_like, pagelocked_zeros_like = _variants(pagelocked_empty)
aligned_zeros, aligned_empty_like, aligned_zeros_like = _variants(aligned_empty)


def register_host_memory(array: np.ndarray, flags: int = 0) -> np.ndarray:
    """A view of a host array that a GPU could copy from without the CPU."""
    current("cuMemHostRegister")
    return array.view()
