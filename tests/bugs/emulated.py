"""Runs cases of the bug list on the emulator, checked."""

import struct
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from tests.bugs.bugs import Array, Case, source_text
from tests.emulator.device_client import DeviceClient, DeviceFailed, Kernels, start_device

MAX_CONTENT = 4096
CODES = {("pointer", 8): "Q", ("int", 4): "i", ("float", 4): "f"}


class Outcome(NamedTuple):
    reports: list[dict[str, Any]]
    results: list[bytes]
    """What the arrays hold afterwards; empty when the launch failed."""
    error: str
    """What the next synchronisation said; empty when all went well."""


class Bench:
    """A device process that is started anew when a launch has failed, as a GPU's context must be."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._device: DeviceClient | None = None
        self._modules: dict[str, Kernels] = {}

    def close(self) -> None:
        self._stack.close()
        self._device = None
        self._modules.clear()

    def run(self, file: str, case: Case, order: int = 0) -> Outcome:
        """Launch one kernel of a file with its threads in this order, and wait."""
        if self._device is None:
            self._device = self._stack.enter_context(start_device())
        outcome = None
        try:
            outcome = self._launch(self._device, file, case, order)
        finally:
            if outcome is None or outcome.error:
                self.close()
        return outcome

    def _launch(self, device: DeviceClient, file: str, case: Case, order: int) -> Outcome:
        if file not in self._modules:
            self._modules[file] = device.compile(source_text(file))
        kernels = self._modules[file]
        device.control("set_mode", order_seed=order)
        device.control("observe", counted=False, checked=True)
        placed = [(a, _allocate(device, a)) for a in case.arguments if isinstance(a, Array)]
        for array, pointer in placed:
            if array.place == "freed":
                device.send("free", ptr=pointer)
        pointers = [pointer for _, pointer in placed]
        packed = _packed(case, pointers, kernels.answer["kernels"][case.kernel]["arguments"])
        device.launch(kernels.answer["module"], case.kernel, packed, case.grid, case.block, case.shared)
        error = _error(device)
        reports = device.control("observed")["reports"]
        results = [] if error else [_content(device, array, pointer) for array, pointer in placed]
        for array, pointer in placed:
            if array.place in ("device", "beside"):
                device.send("free", ptr=pointer)
        return Outcome(reports, results, error)


def _allocate(device: DeviceClient, array: Array) -> int:
    if array.place == "host":
        return int(array.values.ctypes.data)
    pointer = int(device.ask("alloc", bytes=array.bytes)["ptr"])
    if array.values.size:
        device.view(pointer, array.values.shape, array.values.dtype)[...] = array.values
        device.send("copied", to="device", ptr=pointer, bytes=array.values.nbytes)
    return pointer


def _packed(case: Case, pointers: list[int], described: list[dict[str, Any]]) -> bytes:
    packed, left = b"", iter(pointers)
    values = [(next(left) if isinstance(argument, Array) else argument, argument) for argument in case.arguments]
    passed = [
        0 if value == "null" else value for value, argument in values if getattr(argument, "place", "") != "beside"
    ]
    for value, argument in zip(passed, described, strict=True):
        code = CODES[argument["kind"], argument["size"]]
        packed = packed.ljust(argument["offset"], b"\0") + struct.pack(code, value)
    return packed


def _content(device: DeviceClient, array: Array, pointer: int) -> bytes:
    """Of large arrays the last bytes."""
    if array.place in ("host", "freed"):
        return b""
    size = min(array.bytes, MAX_CONTENT)
    return bytes(device.view(pointer + array.bytes - size, size, np.uint8))


def _error(device: DeviceClient) -> str:
    try:
        device.sync()
    except DeviceFailed as failed:
        return str(failed)
    return ""
