"""pycuda.tools: how a program that names no device gets a context."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from pycuda.driver import Context, Device

_NOT_EMULATED = frozenset(
    """
    Argument DebugMemoryPool DeviceData DeviceMemoryPool OccupancyRecord PageLockedAllocator PageLockedMemoryPool
    ScalarArg VectorArg base_dtype_to_ctype bitlog2 context_dependent_memoize dtype_to_ctype get_arg_type
    get_default_device get_or_register_dtype init_cuda_context_fixture mark_cuda_test parse_c_arg register_dtype
    """.split()  # noqa: SIM905
)


def __getattr__(name: str) -> NoReturn:
    if name in _NOT_EMULATED:
        raise NotImplementedError(f"pycuda.tools.{name} is not emulated: it needs a GPU and PyCUDA itself")
    raise AttributeError(f"module 'pycuda.tools' has no attribute '{name}'")


def make_default_context(ctx_maker: Callable[[Device], Context] = Device.make_context) -> Context:
    """A context on the device that CUDA_DEVICE or ~/.cuda_device names, otherwise on the first one."""
    number = os.environ.get("CUDA_DEVICE")
    choice = Path.home() / ".cuda_device"
    if number is None and choice.is_file():
        number = choice.read_text().strip()
    return ctx_maker(Device(int(number or 0)))


def clear_context_caches() -> None:
    """Nothing is cached by context here."""
