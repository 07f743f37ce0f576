"""The types that PyCUDA's own C++ module brings: exceptions, enumerations, and how it refuses arguments."""

import functools
import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NoReturn

from pycuda import KNOWN_NAMES

__all__ = ["Error", "LaunchError", "LogicError", "MemoryError", "RuntimeError", "ctx_flags", "device_attribute"]
__all__ += ["event_flags", "func_cache", "function_attribute"]


class Error(Exception):
    """Any failure of the CUDA driver. MemoryError and RuntimeError below are its kinds, not Python's."""


LogicError, LaunchError, RuntimeError, MemoryError = (
    type(name, (Error,), {"__module__": __name__})
    for name in ("LogicError", "LaunchError", "RuntimeError", "MemoryError")
)
_CLASSES = {2: MemoryError, 100: RuntimeError, 209: RuntimeError, 600: RuntimeError, 999: Error}
_CLASSES |= {701: LaunchError, 702: LaunchError, 719: LaunchError}
_TEXTS = {1: "invalid argument", 3: "initialization error", 101: "invalid device ordinal"}
_TEXTS |= {201: "invalid device context", 400: "invalid resource handle", 500: "named symbol not found"}
INVALID_VALUE, NOT_INITIALIZED, INVALID_DEVICE, INVALID_CONTEXT, INVALID_HANDLE, NOT_FOUND = _TEXTS


def failure(function: str, code: int, text: str = "", detail: str = "") -> Error:
    """The exception for CUDA's error `code` from `function`; `detail` says what the driver's sentence leaves out."""
    message = f"{function} failed: {text or _TEXTS[code]}"
    return _CLASSES.get(code, LogicError)(f"{message} - {detail}" if detail else message)


# How Boost.Python, PyCUDA's binding, takes arguments: by exact type, so that a NumPy integer is no integer.

ArgumentError = type("ArgumentError", (TypeError,), {"__module__": "Boost.Python"})
POINTER = "unsigned long long"
_BITS = {"unsigned char": 8, "unsigned short": 16, "unsigned int": 32, "unsigned long": 64, POINTER: 64, "int": 31}
_PARAMETER = re.compile(rf"({'|'.join(sorted(_BITS, key=len, reverse=True))}|object)(?: (\w+))?(=None)?")


class DevicePointer:
    """Base of the objects that stand for a device pointer."""


def type_name(value: Any) -> str:
    kind = type(value)
    return f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__


def refuse_call(function: str, arguments: tuple[Any, ...], signature: str) -> NoReturn:
    """Raise what Boost.Python raises when the signature does not take these arguments."""
    names = ", ".join(map(type_name, arguments))
    boost = "pycudaboost::python::"
    signature = signature.replace("object", f"{boost}api::object").replace("tuple", f"{boost}tuple")
    text = f"Python argument types in\n    {function}({names})\ndid not match C++ signature:\n    {signature}"
    raise ArgumentError(text)


def refuse_value(value: Any, wanted: str) -> NoReturn:
    """Raise what Boost.Python raises for a value inside an argument that has another type than wanted."""
    way = "extract a C++ reference to" if "stream" in wanted else "produce a C++ rvalue of"
    raise TypeError(
        f"No registered converter was able to {way} type {wanted} from this Python object of type {type_name(value)}"
    )


def integer(value: int, kind: str) -> int:
    """`value` if it fits the C type `kind`; raises OverflowError as Boost.Python does."""
    if value < 0 and kind != "int":
        raise OverflowError("can't convert negative value to unsigned int")
    if value.bit_length() > _BITS[kind]:
        raise OverflowError("bad numeric conversion: positive overflow")
    return int(value)


def boost(signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function take its arguments as a C++ function of this signature does; "object" is any Python object."""
    function, _, listed = signature.rstrip(")").partition("(")
    kinds, names, defaults = zip(*[_PARAMETER.fullmatch(text).groups() for text in listed.split(", ")], strict=True)
    required = defaults.count(None)

    def accepts(kind: str, value: Any) -> bool:
        return kind == "object" or isinstance(value, int) or (kind == POINTER and isinstance(value, DevicePointer))

    def convert(kind: str, value: Any) -> Any:
        return value if kind == "object" else integer(int(value), kind)

    def decorate(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def call(*arguments: Any, **keywords: Any) -> Any:
            given = dict(zip(names, arguments, strict=False)) | keywords
            known = required <= len(given) == len(arguments) + len(keywords) and given.keys() <= set(names)
            values = [given.get(name) for name in names]
            if not known or not all(map(accepts, kinds, values)):
                refuse_call(f"pycuda._driver.{function}", (*arguments, *keywords.values()), signature)
            return work(*map(convert, kinds, values))

        return call

    return decorate


class _Enumeration(IntEnum):
    def __repr__(self) -> str:
        return f"pycuda._driver.{type(self).__name__}.{self.name}"


def _enumeration(name: str) -> Any:
    return _Enumeration(name, [(key, int(n)) for key, n in (entry.split("=") for entry in KNOWN_NAMES[name])])


device_attribute, function_attribute = _enumeration("device_attribute"), _enumeration("function_attribute")
ctx_flags, event_flags, func_cache = map(_enumeration, ("ctx_flags", "event_flags", "func_cache"))
