"""How the arguments of a kernel are packed: PyCUDA's rules, and then a comparison with the kernel's own parameters."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pycuda._memory import DeviceAllocation, Stream, mem_alloc_like, memcpy_dtoh, memcpy_htod

_CODES = "bBhHiIlLqQfdP?"  # the format characters that PyCUDA packs, besides "8s"
_ADVICE = {
    ("int", 1): ": use np.int8 or np.uint8",
    ("int", 2): ": use np.int16 or np.uint16",
    ("int", 4): ": use np.int32 or np.uint32",
    ("int", 8): ": use np.int64 or np.uint64",
    ("float", 4): ": use np.float32",
    ("float", 8): ": use np.float64",
    ("pointer", 8): ": pass a GPUArray, a DeviceAllocation or np.intp(address)",
}


class ArgumentHandler:
    """A host array that is copied to the device for one call."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.dev_alloc: DeviceAllocation | None = None

    def get_device_alloc(self) -> DeviceAllocation:
        if self.dev_alloc is None:
            try:
                self.dev_alloc = mem_alloc_like(self.array)
            except AttributeError:
                raise TypeError(
                    f"could not determine array length of '{type(self.array)}': unsupported array type or not an array"
                ) from None
        return self.dev_alloc

    def pre_call(self, stream: Stream | None) -> None:
        pass


class In(ArgumentHandler):
    """Copied to the device before the call, in any stream."""

    def pre_call(self, stream: Stream | None) -> None:
        memcpy_htod(self.get_device_alloc(), self.array)


class Out(ArgumentHandler):
    """Filled from the device after the call, in any stream."""

    def post_call(self, stream: Stream | None) -> None:
        memcpy_dtoh(self.array, self.get_device_alloc())


class InOut(In, Out):
    """Both."""


class Parameter(NamedTuple):
    """One parameter of a kernel: bytes, position in the packed arguments, "pointer", "int", "float" or "struct"."""

    size: int
    offset: int
    kind: str


class Signature:
    """The parameters of a kernel, and the ways of packing that were found to fit them."""

    def __init__(self, kernel: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        self.kernel = kernel
        self.parameters = [Parameter(entry["size"], entry["offset"], entry["kind"]) for entry in parameters]
        self._packers: dict[str, Callable[..., bytes]] = {}

    def pack(self, arguments: Sequence[Any]) -> bytes:
        """The packed arguments of a plain call; raises TypeError, and struct.error for types PyCUDA cannot pack."""
        packed = [_argument(index, value) for index, value in enumerate(arguments)]
        layout = "".join([code for code, _ in packed])
        if layout not in self._packers:
            self._packers[layout] = self.packer(layout, [f"a {type(value).__name__}" for value in arguments])
        return self._packers[layout](*[value for _, value in packed])

    def packer(self, layout: str, described: Sequence[str] | None = None) -> Callable[..., bytes]:
        """What packs arguments in this format; raises TypeError, naming the first that does not fit its parameter."""
        codes = split(layout)
        if not all(code in _CODES or code[:-1] for code in codes):
            raise struct.error("bad char in struct format")
        if len(codes) != len(self.parameters):
            raise TypeError(
                f"{self.kernel} takes {len(self.parameters)} arguments, got {len(codes)}: "
                "the call must name every parameter of the kernel, in its order"
            )
        offset = 0
        for index, (code, parameter) in enumerate(zip(codes, self.parameters, strict=True)):
            size, is_float = struct.calcsize(code), code in "fd"
            what = f"parameter #{index} (0-based) of {self.kernel} is {_A[parameter.kind]} of {parameter.size} bytes"
            if size != parameter.size or (parameter.kind != "struct" and is_float != (parameter.kind == "float")):
                given = described[index] if described else f'the format "{code}"'
                advice = _ADVICE.get((parameter.kind, parameter.size), "")
                raise TypeError(f"{what}, got {given} of {size} bytes{advice}")
            alignment = 1 if code[-1] == "s" else size
            offset = -(-offset // alignment) * alignment
            if offset != parameter.offset:
                raise TypeError(
                    f"{what} at byte {parameter.offset}, where PyCUDA would put it at byte {offset}: "
                    "let it be the kernel's first parameter, or pass a pointer to it"
                )
            offset += size
        return struct.Struct(layout).pack


_A = {"int": "an int", "float": "a float", "pointer": "a pointer", "struct": "a struct"}


def split(layout: str) -> list[str]:
    """The formats of single arguments: "P8si" is "P", "8s", "i"."""
    return re.findall(r"\d+s|.", layout)


def prepared_format(kind: Any) -> str:
    """PyCUDA's format character for one of the types given to `prepare`."""
    if isinstance(kind, type) and issubclass(kind, np.number):
        return np.dtype(kind).char
    if isinstance(kind, np.dtype):
        return f"{kind.itemsize}s" if kind.char == "V" else kind.char
    return kind if isinstance(kind, str) else np.dtype(np.uintp).char


def packing_error(layout: str, arguments: Sequence[Any], error: Exception) -> Exception:
    """What to raise when arguments of a prepared call cannot be packed."""
    codes = split(layout)
    if len(arguments) != len(codes):
        return struct.error(f"pack requires exactly {len(codes)} arguments")
    for index, (code, value) in enumerate(zip(codes, arguments, strict=True)):
        try:
            struct.pack(code, value)
        except (struct.error, OverflowError) as reason:
            hint = ", pass its .gpudata" if hasattr(value, "gpudata") else ""
            given = f'parameter #{index} (0-based), format "{code}", is a {type(value).__name__}{hint}'
            return struct.error(f"{reason} ({given})")
    return error


def _argument(index: int, value: Any) -> tuple[str, Any]:
    """Format character and packable value of one argument of a plain call."""
    if isinstance(value, np.number):
        if value.dtype.char not in _CODES + "FD":
            raise struct.error("bad char in struct format")
        return (f"{value.nbytes}s", value.tobytes()) if value.dtype.kind == "c" else (value.dtype.char, value)
    if isinstance(value, DeviceAllocation):
        return "P", int(value)
    if isinstance(value, ArgumentHandler):
        return "P", int(value.get_device_alloc())
    if isinstance(value, np.void):
        return f"{value.itemsize}s", value.tobytes()
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface:
        return "P", interface["data"][0]
    if isinstance(value, np.ndarray) or not hasattr(value, "gpudata"):
        _refuse(index, value)
    return "P", int(np.uintp(value.gpudata))


def _refuse(index: int, value: Any) -> NoReturn:
    hint = ""
    if isinstance(value, np.ndarray):
        hint = (
            ": a NumPy array would be passed by value, not as a pointer; wrap it in pycuda.driver.In, Out or InOut, "
            "or copy it to the device with pycuda.gpuarray.to_gpu"
        )
    elif isinstance(value, int | float | np.bool_):
        hint = f": a {type(value).__name__} has no C width; use np.int32, np.float32, or np.intp for an address"
    raise TypeError(f"invalid type on parameter #{index} (0-based){hint}")
