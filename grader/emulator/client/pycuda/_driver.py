"""The types that PyCUDA's own C++ module brings: exceptions, enumerations, and how it refuses arguments."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NoReturn

__all__ = [
    "Error", "LaunchError", "LogicError", "MemoryError", "RuntimeError", "ctx_flags", "device_attribute",
    "event_flags", "func_cache", "function_attribute",
]  # fmt: skip


class Error(Exception):
    """Any failure of the CUDA driver."""


class LogicError(Error):
    """The program asked for something wrong, or an earlier kernel did."""


class LaunchError(Error):
    """A kernel could not be launched, or it failed."""


class RuntimeError(Error):
    """No device, or it is not ready."""


class MemoryError(Error):
    """Device memory is used up."""


_CLASSES: dict[int, type[Error]] = {
    2: MemoryError,
    100: RuntimeError,
    209: RuntimeError,
    600: RuntimeError,
    701: LaunchError,
    702: LaunchError,
    719: LaunchError,
    999: Error,
}
_TEXTS = {
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    101: "invalid device ordinal",
    201: "invalid device context",
    400: "invalid resource handle",
    500: "named symbol not found",
}
INVALID_VALUE, NOT_INITIALIZED, INVALID_DEVICE, INVALID_CONTEXT, INVALID_HANDLE, NOT_FOUND = 1, 3, 101, 201, 400, 500


def failure(function: str, code: int, text: str = "", detail: str = "") -> Error:
    """The exception for CUDA's error `code` from `function`; `detail` says what the driver's sentence leaves out."""
    message = f"{function} failed: {text or _TEXTS[code]}"
    return _CLASSES.get(code, LogicError)(f"{message} - {detail}" if detail else message)


# How Boost.Python, PyCUDA's binding, takes arguments: exact types, no NumPy integers.

ArgumentError = type("ArgumentError", (TypeError,), {"__module__": "Boost.Python", "__doc__": "No such signature."})
POINTER = "unsigned long long"
_LIMITS = {"int": (-(1 << 31), (1 << 31) - 1)} | {
    f"unsigned {kind}": (0, (1 << bits) - 1)
    for kind, bits in (("char", 8), ("short", 16), ("int", 32), ("long", 64), ("long long", 64))
}
_PARAMETER = re.compile(rf"({'|'.join(sorted(_LIMITS, key=len, reverse=True))}|object)(?: (\w+))?(?:=(\w+))?")


class DevicePointer:
    """Base of the objects that may stand for a device pointer."""


def refuse(function: str, arguments: tuple[Any, ...], signature: str) -> NoReturn:
    """Raise what Boost.Python raises when no signature takes these arguments."""
    names = ", ".join(_type_name(type(argument)) for argument in arguments)
    expanded = signature.replace("object", "pycudaboost::python::api::object")
    expanded = expanded.replace("tuple", "pycudaboost::python::tuple")
    raise ArgumentError(
        f"Python argument types in\n    {function}({names})\ndid not match C++ signature:\n    {expanded}"
    )


def _type_name(kind: type) -> str:
    return f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__


def integer(value: int, kind: str) -> int:
    """`value` if it fits the C type `kind`; raises OverflowError as Boost.Python does."""
    low, high = _LIMITS[kind]
    if value < low and kind.startswith("unsigned"):
        raise OverflowError("can't convert negative value to unsigned int")
    if not low <= value <= high:
        raise OverflowError("bad numeric conversion: positive overflow")
    return int(value)


def boost(signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function take its arguments as a C++ function of this signature does; "object" is any Python object."""
    name, _, listed = signature.rstrip(")").partition("(")
    parameters = [_PARAMETER.fullmatch(text) for text in listed.split(", ")]
    kinds = [match[1] for match in parameters if match]
    names = [match[2] for match in parameters if match]
    required = sum(match[3] is None for match in parameters if match)

    def accepts(kind: str, value: Any) -> bool:
        return kind == "object" or isinstance(value, int) or (kind == POINTER and isinstance(value, DevicePointer))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            values = list(arguments)
            for position in range(len(values), len(names)):  # keywords continue where the positions end
                if names[position] not in keywords:
                    break
                values.append(keywords[names[position]])
            fits = required <= len(values) <= len(kinds) and len(values) == len(arguments) + len(keywords)
            if not fits or not all(map(accepts, kinds, values)):
                refuse(f"pycuda._driver.{name}", arguments + tuple(keywords.values()), signature)
            return function(*[v if k == "object" else integer(int(v), k) for k, v in zip(kinds, values, strict=False)])

        return call

    return decorate


def refuse_stream(value: Any) -> NoReturn:
    raise TypeError(
        "No registered converter was able to extract a C++ reference to type pycuda::stream "
        f"from this Python object of type {_type_name(type(value))}"
    )


def refuse_conversion(value: Any, kind: str = "unsigned int") -> NoReturn:
    raise TypeError(
        f"No registered converter was able to produce a C++ rvalue of type {kind} "
        f"from this Python object of type {_type_name(type(value))}"
    )


# Enumerations


class _Enumeration(IntEnum):
    def __repr__(self) -> str:
        return f"pycuda._driver.{type(self).__name__}.{self.name}"


def _enumeration(name: str, members: str) -> type[IntEnum]:
    """`members` lists "NAME=number"; a second name of a number is an alias."""
    pairs = [member.split("=") for member in members.split()]
    return _Enumeration(name, [(key, int(number)) for key, number in pairs], module="pycuda._driver")  # type: ignore


device_attribute = _enumeration(
    "device_attribute",
    """
    MAX_THREADS_PER_BLOCK=1 MAX_BLOCK_DIM_X=2 MAX_BLOCK_DIM_Y=3 MAX_BLOCK_DIM_Z=4 MAX_GRID_DIM_X=5 MAX_GRID_DIM_Y=6
    MAX_GRID_DIM_Z=7 MAX_SHARED_MEMORY_PER_BLOCK=8 SHARED_MEMORY_PER_BLOCK=8 TOTAL_CONSTANT_MEMORY=9 WARP_SIZE=10
    MAX_PITCH=11 MAX_REGISTERS_PER_BLOCK=12 REGISTERS_PER_BLOCK=12 CLOCK_RATE=13 GPU_OVERLAP=15 MULTIPROCESSOR_COUNT=16
    KERNEL_EXEC_TIMEOUT=17 INTEGRATED=18 CAN_MAP_HOST_MEMORY=19 COMPUTE_MODE=20 CONCURRENT_KERNELS=31 ECC_ENABLED=32
    MEMORY_CLOCK_RATE=36 GLOBAL_MEMORY_BUS_WIDTH=37 L2_CACHE_SIZE=38 MAX_THREADS_PER_MULTIPROCESSOR=39
    ASYNC_ENGINE_COUNT=40 UNIFIED_ADDRESSING=41 COMPUTE_CAPABILITY_MAJOR=75 COMPUTE_CAPABILITY_MINOR=76
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR=81 MAX_REGISTERS_PER_MULTIPROCESSOR=82 MANAGED_MEMORY=83
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=97 MAX_BLOCKS_PER_MULTIPROCESSOR=106 RESERVED_SHARED_MEMORY_PER_BLOCK=111
    """,
)
function_attribute = _enumeration(
    "function_attribute",
    """
    MAX_THREADS_PER_BLOCK=0 SHARED_SIZE_BYTES=1 CONST_SIZE_BYTES=2 LOCAL_SIZE_BYTES=3 NUM_REGS=4 PTX_VERSION=5
    BINARY_VERSION=6 CACHE_MODE_CA=7 MAX_DYNAMIC_SHARED_SIZE_BYTES=8 PREFERRED_SHARED_MEMORY_CARVEOUT=9
    """,
)
ctx_flags = _enumeration(
    "ctx_flags", "SCHED_AUTO=0 SCHED_SPIN=1 SCHED_YIELD=2 SCHED_BLOCKING_SYNC=4 BLOCKING_SYNC=4 MAP_HOST=8"
)
event_flags = _enumeration("event_flags", "DEFAULT=0 BLOCKING_SYNC=1 DISABLE_TIMING=2 INTERPROCESS=4")
func_cache = _enumeration("func_cache", "PREFER_NONE=0 PREFER_SHARED=1 PREFER_L1=2 PREFER_EQUAL=3")
