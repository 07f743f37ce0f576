"""A device process and the raw messages to it, for tests that need no PyCUDA."""

import mmap
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from grader import KIT
from grader.ipc.framing import receive_frame, send_frame

ARENA_BYTES = 64 << 30
LIMIT = 1 << 24


class DeviceFailed(Exception):
    """A sync reported an error; `error` is that of grader/emulator/device/process.py."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['text']}: {error['detail']}")
        self.error = error


class CompileFailed(Exception):
    """The compiler's log."""


class Kernels:
    """A compiled module: its kernels are called as methods, `block` threads a block."""

    def __init__(self, device: "DeviceClient", answer: dict[str, Any]) -> None:
        self.device = device
        self.answer = answer

    def __call__(
        self, name: str, *arguments: Any, grid: Sequence[int] = (1,), block: Sequence[int] = (32,), shared: int = 0
    ) -> None:
        """Launch and wait; arrays are passed as pointers, int and float as such. Raises DeviceFailed."""
        packed = b""
        for value, argument in zip(arguments, self.answer["kernels"][name]["arguments"], strict=True):
            code = {"pointer": "Q", "float": {4: "f", 8: "d"}.get(argument["size"]), "int": "i"}[argument["kind"]]
            pointer = self.device.pointers[id(value)] if isinstance(value, np.ndarray) else value
            packed = packed.ljust(argument["offset"], b"\0") + struct.pack(str(code), pointer)
        self.device.launch(self.answer["module"], name, packed, grid, block, shared)
        self.device.sync()


class DeviceClient:
    """The sockets of one device process and its memory."""

    def __init__(self, client: socket.socket, control: socket.socket, memory_file: int) -> None:
        self.client = client
        self.control_socket = control
        self.memory_file = memory_file
        self.memory = mmap.mmap(memory_file, ARENA_BYTES)
        self.base = self.ask("hello")["base"]
        self.pointers: dict[int, int] = {}

    def send(self, verb: str, payload: bytes = b"", **fields: Any) -> None:
        send_frame(self.client, {"verb": verb, **fields}, payload)

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        self.send(verb, **fields)
        return receive_frame(self.client, LIMIT, LIMIT)[0]

    def control(self, verb: str, **fields: Any) -> dict[str, Any]:
        send_frame(self.control_socket, {"verb": verb, **fields})
        return receive_frame(self.control_socket, LIMIT, LIMIT)[0]

    def sync(self) -> None:
        error = self.ask("sync")["error"]
        if error:
            raise DeviceFailed(error)

    def compile(self, source: str, *options: str) -> Kernels:
        answer = self.ask("compile", source=source, options=list(options), include_dirs=[])
        if "error" in answer:
            raise CompileFailed(answer["log"])
        return Kernels(self, answer)

    def launch(
        self, module: int, name: str, packed: bytes, grid: Sequence[int], block: Sequence[int], shared: int = 0
    ) -> None:
        extents = {"grid": [*grid, 1, 1][:3], "block": [*block, 1, 1][:3]}
        self.send("launch", packed, module=module, kernel=name, shared=shared, **extents)

    def view(self, pointer: int, shape: int | tuple[int, ...], dtype: Any) -> Any:
        """The bytes at a device pointer as an array that shares them."""
        count = int(np.prod(shape))
        return np.frombuffer(self.memory, dtype, count, pointer - self.base).reshape(shape)

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Any:
        """A new array in device memory."""
        size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
        pointer = self.ask("alloc", bytes=size)["ptr"]
        array = self.view(pointer, shape, dtype)
        self.pointers[id(array)] = pointer
        return array

    def array(self, values: Any) -> Any:
        values = np.asarray(values)
        array = self.empty(values.shape, values.dtype)
        array[...] = values
        return array


@contextmanager
def start_device(capacity: int = 4 << 30, cores: int = 2) -> Iterator[DeviceClient]:
    ours, theirs = socket.socketpair()
    control, its_control = socket.socketpair()
    file = os.memfd_create("device-memory")
    os.ftruncate(file, ARENA_BYTES)
    descriptors = [theirs.fileno(), its_control.fileno(), file]
    command = [sys.executable, "-E", "-s", "-B", "-m", "grader.emulator.device.process", *map(str, descriptors)]
    process = subprocess.Popen([*command, str(ARENA_BYTES), str(capacity), str(cores)], cwd=KIT, pass_fds=descriptors)
    theirs.close()
    its_control.close()
    try:
        yield DeviceClient(ours, control, file)
    finally:
        ours.close()
        process.wait(10)
        os.close(file)
