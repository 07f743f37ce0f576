"""How the arguments of a kernel are packed: PyCUDA's rules, and then a comparison with the kernel's own parameters."""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from pycuda._driver import type_name
from pycuda._memory import DeviceAllocation, Stream, mem_alloc_like, memcpy_dtoh, memcpy_htod

_CODES = "bBhHiIlLqQfdP?"  # the format characters that PyCUDA packs, besides "8s"
_ADVICE = {
    ("int", 4): ": use np.int32 or np.uint32",
    ("int", 8): ": use np.int64 or np.uint64",
    ("float", 4): ": use np.float32",
    ("float", 8): ": use np.float64",
    ("pointer", 8): ": pass a GPUArray, a DeviceAllocation or np.intp(address)",
}


class ArgumentHandler:
    """A host array that lives on the device for one call."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.dev_alloc: DeviceAllocation | None = None

    def get_device_alloc(self) -> DeviceAllocation:
        if not hasattr(self.array, "nbytes"):
            kind = type(self.array)
            raise TypeError(f"could not determine array length of '{kind}': unsupported array type or not an array")
        if self.dev_alloc is None:
            self.dev_alloc = mem_alloc_like(self.array)
        return self.dev_alloc

    def pre_call(self, stream: Stream | None) -> None:
        """Before the launch; copies are in the default stream, whatever the launch's."""

    def post_call(self, stream: Stream | None) -> None:
        """After the launch."""


class In(ArgumentHandler):
    """Copied to the device before the call."""

    def pre_call(self, stream: Stream | None) -> None:
        memcpy_htod(self.get_device_alloc(), self.array)


class Out(ArgumentHandler):
    """Filled from the device after the call."""

    def post_call(self, stream: Stream | None) -> None:
        memcpy_dtoh(self.array, self.get_device_alloc())


class InOut(In, Out):
    """Both."""


class Signature:
    """The parameters of a kernel, and the ways of packing that were found to fit them."""

    def __init__(self, kernel: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        self.kernel = kernel
        self.parameters = parameters  # each with "size" and "offset" in bytes and a "kind": pointer, int, float, struct
        self._packers: dict[str, Callable[..., bytes]] = {}

    def pack(self, arguments: Sequence[Any]) -> bytes:
        """The packed arguments of a plain call; raises TypeError, and struct.error for types PyCUDA cannot pack."""
        packed = [_argument(index, value) for index, value in enumerate(arguments)]
        layout = "".join([code for code, _ in packed])
        if layout not in self._packers:
            self._packers[layout] = self.packer(layout, [*map(type_name, arguments)])
        return self._packers[layout](*[value for _, value in packed])

    def packer(self, layout: str, described: Sequence[str] = ()) -> Callable[..., bytes]:
        """What packs arguments in this format; raises TypeError, naming the first that does not fit its parameter."""
        codes = _split(layout)
        if not all(code in _CODES or code[:-1] for code in codes):
            raise struct.error("bad char in struct format")
        if len(codes) != len(self.parameters):
            raise TypeError(
                f"{self.kernel} takes {len(self.parameters)} arguments, got {len(codes)}: "
                "the call must name every parameter of the kernel, in its order"
            )
        end = 0
        for index, (code, parameter) in enumerate(zip(codes, self.parameters, strict=True)):
            size, kind, wanted = struct.calcsize(code), parameter["kind"], parameter["size"]
            what = f"parameter #{index} (0-based) of {self.kernel} is of kind {kind} and {wanted} bytes"
            if size != wanted or (kind != "struct" and (code in "fd") != (kind == "float")):
                given = described[index] if described else f'the format "{code}"'
                raise TypeError(f"{what}, got {given} of {size} bytes{_ADVICE.get((kind, wanted), '')}")
            start = end if code[-1] == "s" else -(-end // size) * size
            if start != parameter["offset"]:
                raise TypeError(
                    f"{what}, at byte {parameter['offset']}, where PyCUDA would put it at byte {start}: "
                    "let it be the kernel's first parameter, or pass a pointer to it"
                )
            end = start + size
        return struct.Struct(layout).pack


def _split(layout: str) -> list[str]:
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
    codes = _split(layout)
    if str(error).startswith("bad char"):
        return error
    if len(arguments) != len(codes):
        return struct.error(f"pack requires exactly {len(codes)} arguments")
    for index, (code, value) in enumerate(zip(codes, arguments, strict=True)):
        try:
            struct.pack(code, value)
        except (struct.error, OverflowError) as reason:
            hint = ", pass its .gpudata" if hasattr(value, "gpudata") else ""
            return struct.error(f"{reason} (parameter #{index} (0-based) is a {type_name(value)}{hint})")
    return error


def _argument(index: int, value: Any) -> tuple[str, Any]:
    """Format character and packable value of one argument of a plain call."""
    if isinstance(value, np.number):
        if value.dtype.char not in _CODES:
            raise struct.error("bad char in struct format")
        return value.dtype.char, value
    if isinstance(value, DeviceAllocation):
        return "P", int(value)
    if isinstance(value, ArgumentHandler):
        return "P", int(value.get_device_alloc())
    if isinstance(value, np.void):
        return f"{value.itemsize}s", value.tobytes()
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface:
        return "P", interface["data"][0]
    if not hasattr(value, "gpudata"):
        _refuse(index, value)
    return "P", int(np.uintp(value.gpudata))


def _refuse(index: int, value: Any) -> NoReturn:
    hint = ""
    if isinstance(value, np.ndarray):
        hint = (
            ": an array would be passed by value; wrap it in driver.In, Out or InOut, or copy it with gpuarray.to_gpu"
        )
    elif isinstance(value, int | float | np.bool_):
        hint = f": a {type(value).__name__} has no C width; use np.int32, np.float32, or np.intp for an address"
    raise TypeError(f"invalid type on parameter #{index} (0-based){hint}")
