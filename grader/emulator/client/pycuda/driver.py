"""pycuda.driver on the emulated GPU: devices, contexts, events, and the names of the other parts.

A process has one device, which its contexts share; a context belongs to the thread that made it current.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any, NoReturn

from pycuda import _connection
from pycuda._arguments import ArgumentHandler, In, InOut, Out  # noqa: F401
from pycuda._connection import current, initialized, thread
from pycuda._driver import *  # noqa: F403
from pycuda._driver import (
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    Error,
    device_attribute,
    failure,
)
from pycuda._function import Function, Module  # noqa: F401
from pycuda._memory import *  # noqa: F403
from pycuda._memory import Stream, check_stream

_NOT_EMULATED = frozenset(
    """
    Array ArrayDescriptor ArrayDescriptor3D DeviceMemoryPool HostPointer IPCMemoryHandle Linker ManagedAllocation
    ManagedAllocationOrStub Memcpy2D Memcpy3D Memcpy3DPeer PageLockedAllocator PageLockedMemoryPool PointerHolderBase
    PooledDeviceAllocation PooledHostAllocation RegisteredHostMemory SurfaceReference TRSA_OVERRIDE_FORMAT
    TRSF_NORMALIZED_COORDINATES TRSF_READ_AS_INTEGER TR_DEFAULT TextureReference address_mode array3d_flags
    array_cubemap_face array_format bind_array_to_texref bitlog2 compute_mode dtype_to_array_format filter_mode
    gpuarray_to_array graphics_register_flags initialize_profiler ipc_mem_flags jit_fallback jit_input_type jit_option
    jit_target limit make_multichannel_2d_array managed_empty managed_empty_like managed_zeros managed_zeros_like
    matrix_to_array matrix_to_texref mem_alloc_pitch mem_attach_flags mem_get_address_range mem_get_ipc_handle
    memcpy_atoa memcpy_atod memcpy_dtoa memcpy_peer memcpy_peer_async memory_type memset_d2d16 memset_d2d16_async
    memset_d2d32 memset_d2d32_async memset_d2d8 memset_d2d8_async module_from_file host_alloc_flags
    mem_host_register_flags np_to_array pointer_attribute
    profiler_output_mode py_memcpy_atoh py_memcpy_htoa set_debugging shared_config start_profiler stop_profiler
    """.split()  # noqa: SIM905
)


def __getattr__(name: str) -> NoReturn:
    if name in _NOT_EMULATED:
        raise NotImplementedError(f"pycuda.driver.{name} is not emulated: it needs a GPU and PyCUDA itself")
    raise AttributeError(f"module 'pycuda.driver' has no attribute '{name}'")


def init(flags: int = 0) -> None:
    """Reach the device; call it before anything else."""
    _connection.initialize()


def get_version() -> tuple[int, int, int]:
    """The CUDA version that PyCUDA was made for."""
    return (13, 0, 0)


def get_driver_version() -> int:
    return 13000


class CompileError(Error):
    """The compiler refused a source: `msg`, `command_line`, and what it printed in `stdout` and `stderr`."""

    def __init__(self, msg: str, command_line: list[str], stdout: str | None = None, stderr: str | None = None) -> None:
        self.msg = msg
        self.command_line = command_line
        self.stdout = stdout
        self.stderr = stderr

    def __str__(self) -> str:
        text = self.msg
        if self.command_line:
            text += f"\n[command: {' '.join(self.command_line)}]"
        if self.stdout:
            text += f"\n[stdout:\n{self.stdout}]"
        if self.stderr:
            text += f"\n[stderr:\n{self.stderr}]"
        return text


class Device:
    """The emulated GPU: there is one, number 0."""

    def __init__(self, number: int) -> None:
        self._properties = initialized("cuDeviceGet").properties
        if number != 0:
            raise failure("cuDeviceGet", INVALID_DEVICE)

    @staticmethod
    def count() -> int:
        initialized("cuDeviceGetCount")
        return 1

    def name(self) -> str:
        return self._properties["name"]

    def compute_capability(self) -> tuple[int, int]:
        major, minor = self._properties["compute_capability"]
        return major, minor

    def total_memory(self) -> int:
        """Bytes of device memory."""
        return self._properties["capacity"]

    def pci_bus_id(self) -> str:
        return "0000:00:00.0"

    def get_attribute(self, attribute: Any) -> int:
        values = {device_attribute[name]: value for name, value in self._properties["attributes"].items()}
        if attribute not in values:
            raise failure("cuDeviceGetAttribute", INVALID_VALUE)
        return values[attribute]

    def get_attributes(self) -> dict[Any, int]:
        return {device_attribute[name]: value for name, value in self._properties["attributes"].items()}

    def make_context(self, flags: int = 0) -> Context:
        """A new context, current in this thread until it is popped."""
        context = Context(self)
        context.push()
        return context

    def retain_primary_context(self) -> Context:
        """The context that libraries share; it is current only after `push`."""
        return Context(self)

    def __getattr__(self, name: str) -> int:
        attribute = device_attribute.__members__.get(name.upper())
        if attribute is None:
            raise AttributeError(f"type object 'device_attribute' has no attribute '{name.upper()}'")
        return self.get_attribute(attribute)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return hash(Device)


class Context:
    """What makes the device usable for a thread: contexts form a stack, the last one pushed is current."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._valid = True
        self.handle = id(self)

    def push(self) -> None:
        """Make this context current in the calling thread."""
        if not self._valid:
            raise failure("cuCtxPushCurrent", INVALID_CONTEXT)
        thread.contexts.append(self)

    @staticmethod
    def pop() -> None:
        """Make the context before the current one current again."""
        if not thread.contexts:
            raise failure("context::pop", INVALID_CONTEXT, detail="cannot pop non-current context")
        thread.contexts.pop()

    def detach(self) -> None:
        """Give the context up."""
        if not self._valid:
            raise failure("context::detach", INVALID_CONTEXT, detail="cannot detach from invalid context")
        self._valid = False
        if thread.contexts and thread.contexts[-1] is self:
            thread.contexts.pop()

    @staticmethod
    def synchronize() -> None:
        """Wait for all work; raises what a kernel did wrong."""
        current("cuCtxSynchronize").synchronize("cuCtxSynchronize")

    @staticmethod
    def get_current() -> Context | None:
        return thread.contexts[-1] if thread.contexts else None

    @staticmethod
    def get_device() -> Device:
        current("cuCtxGetDevice")
        return thread.contexts[-1]._device

    @staticmethod
    def get_api_version() -> int:
        return 3020

    @staticmethod
    def set_cache_config(config: Any) -> None:
        """A hint to the hardware, of which there is none."""

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("attach", "get_limit", "set_limit", "get_cache_config", "get_shared_config", "set_shared_config"):
            raise NotImplementedError(f"Context.{name} is not emulated: it needs a GPU and PyCUDA itself")
        raise AttributeError(f"'Context' object has no attribute '{name}'")


class Event:
    """A mark in the queue of work, with the time at which the device came to it."""

    _count = 0

    def __init__(self, flags: int = 0) -> None:
        current("cuEventCreate")
        Event._count += 1
        self._number = Event._count

    def record(self, stream: Stream | None = None) -> Event:
        check_stream(stream)
        current("cuEventRecord").send({"verb": "record", "event": self._number})
        return self

    def synchronize(self) -> Event:
        """Wait until the device has come to the mark."""
        current("cuEventSynchronize").synchronize("cuEventSynchronize")
        return self

    def query(self) -> bool:
        current("cuEventQuery").synchronize("cuEventQuery")
        return True

    def time_since(self, event: Event) -> float:
        """Milliseconds from another event to this one, in the device's time."""
        return (self._nanoseconds() - event._nanoseconds()) * 1e-6

    def time_till(self, event: Event) -> float:
        """Milliseconds from this event to another one."""
        return event.time_since(self)

    def _nanoseconds(self) -> int:
        answer = current("cuEventElapsedTime").request("cuEventElapsedTime", {"verb": "event", "event": self._number})
        if answer["nanoseconds"] is None:
            raise failure("cuEventElapsedTime", INVALID_HANDLE)
        return answer["nanoseconds"]


def module_from_buffer(buffer: bytes, options: Any = (), message_handler: Any = None) -> Module:
    """Load what pycuda.compiler.compile returned."""
    from pycuda.compiler import compiled_module

    current("cuModuleLoadDataEx")
    return Module(compiled_module(buffer))


def _abort_with_context() -> None:
    """PyCUDA ends a program that leaves a context current; so that none relies on less, this one does too."""
    if thread.contexts:
        print("PyCUDA ERROR: The context stack was not empty upon module cleanup.", file=sys.stderr)
        print("Use Context.pop() before the program ends; it is aborted now.", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os.abort()


atexit.register(_abort_with_context)
