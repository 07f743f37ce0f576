"""pycuda.driver on the emulated GPU: devices, contexts, events, and the names of the other parts.

A process has one device, which its contexts share; a context belongs to the thread that made it current.
"""

import atexit
import functools
import os
import sys
from typing import Any, NoReturn

from pycuda import _connection, refuse
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
from pycuda._function import ArgumentHandler, Function, In, InOut, Module, Out  # noqa: F401
from pycuda._memory import *  # noqa: F403
from pycuda._memory import Stream, check_stream

__getattr__ = functools.partial(refuse, "pycuda.driver")


class CompileError(Error):
    """The compiler refused a source: `msg`, `command_line`, and what it printed in `stdout` and `stderr`."""

    def __init__(self, msg: str, command_line: list[str], stdout: str = "", stderr: str = "") -> None:
        self.msg, self.command_line, self.stdout, self.stderr = msg, command_line, stdout, stderr

    def __str__(self) -> str:
        text = f"{self.msg}\n[command: {' '.join(self.command_line)}]" if self.command_line else self.msg
        printed = (("stdout", self.stdout), ("stderr", self.stderr))
        return text + "".join([f"\n[{name}:\n{said}]" for name, said in printed if said])


def init(flags: int = 0) -> None:
    """Reach the device; call it before anything else."""
    _connection.initialize()


def get_version() -> tuple[int, int, int]:
    """The CUDA version that is imitated."""
    return (13, 0, 0)


def get_driver_version() -> int:
    return 13000


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
        return tuple(self._properties["compute_capability"])

    def total_memory(self) -> int:
        """Bytes of device memory."""
        return self._properties["capacity"]

    def get_attributes(self) -> dict[Any, int]:
        return {device_attribute[name]: value for name, value in self._properties["attributes"].items()}

    def get_attribute(self, attribute: Any) -> int:
        values = self.get_attributes()
        if attribute not in values:
            raise failure("cuDeviceGetAttribute", INVALID_VALUE)
        return values[attribute]

    def make_context(self, flags: int = 0) -> "Context":
        """A new context, current in this thread until it is popped."""
        context = Context(self)
        context.push()
        return context

    def retain_primary_context(self) -> "Context":
        """The context that libraries share; it is current only after `push`."""
        return Context(self)

    def __getattr__(self, name: str) -> int:
        if name.upper() not in device_attribute.__members__:
            raise AttributeError(f"type object 'device_attribute' has no attribute '{name.upper()}'")
        return self.get_attribute(device_attribute[name.upper()])


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
    def get_current() -> "Context | None":
        return thread.contexts[-1] if thread.contexts else None

    @staticmethod
    def get_device() -> Device:
        current("cuCtxGetDevice")
        return thread.contexts[-1]._device

    def __getattr__(self, name: str) -> NoReturn:
        refuse("pycuda.driver.Context", name)


class Event:
    """A mark in the queue of work, with the time at which the device came to it."""

    _count = 0

    def __init__(self, flags: int = 0) -> None:
        current("cuEventCreate")
        Event._count += 1
        self._number = Event._count

    def record(self, stream: Stream | None = None) -> "Event":
        check_stream(stream)
        current("cuEventRecord").send({"verb": "record", "event": self._number})
        return self

    def synchronize(self) -> "Event":
        """Wait until the device has come to the mark."""
        current("cuEventSynchronize").synchronize("cuEventSynchronize")
        return self

    def query(self) -> bool:
        current("cuEventQuery").synchronize("cuEventQuery")
        return True

    def time_since(self, event: "Event") -> float:
        """Milliseconds from another event to this one, in the device's time."""
        return (self._nanoseconds() - event._nanoseconds()) * 1e-6

    def time_till(self, event: "Event") -> float:
        return event.time_since(self)

    def _nanoseconds(self) -> int:
        answer = current("cuEventElapsedTime").request("cuEventElapsedTime", {"verb": "event", "event": self._number})
        if answer["nanoseconds"] is None:
            raise failure("cuEventElapsedTime", INVALID_HANDLE)
        return answer["nanoseconds"]


def module_from_buffer(buffer: bytes, options: Any = (), message_handler: Any = None) -> Module:
    """Load what pycuda.compiler.compile returned; each module loaded from it has variables of its own."""
    connection = current("cuModuleLoadDataEx")
    if buffer not in connection.compiled:
        raise NotImplementedError("pycuda.driver.module_from_buffer is not emulated for GPU code: use SourceModule")
    message, answer = connection.compiled[buffer]
    connection.compiled[buffer] = message, None
    return Module(answer or connection.request("cuModuleLoadDataEx", message))


@atexit.register
def _abort_with_context() -> None:
    """PyCUDA aborts a program that leaves a context current; so that none relies on less, this one does too."""
    if thread.contexts:
        print("PyCUDA ERROR: The context stack was not empty upon module cleanup.", file=sys.stderr)
        print("Use Context.pop() before the program ends; it is aborted now.", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os.abort()
