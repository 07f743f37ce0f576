"""pycuda.tools: how a program that names no device gets a context."""

import functools
import os
from collections.abc import Callable
from pathlib import Path

from pycuda import refuse
from pycuda.driver import Context, Device

__getattr__ = functools.partial(refuse, "pycuda.tools")


def make_default_context(ctx_maker: Callable[[Device], Context] = Device.make_context) -> Context:
    """A context on the device that CUDA_DEVICE or ~/.cuda_device names, otherwise on the first one."""
    number = os.environ.get("CUDA_DEVICE")
    choice = Path.home() / ".cuda_device"
    if number is None and choice.is_file():
        number = choice.read_text().strip()
    return ctx_maker(Device(int(number or 0)))


def clear_context_caches() -> None:
    """Nothing is cached by context here."""
