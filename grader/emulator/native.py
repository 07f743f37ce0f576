"""The runtime library and compiled modules, loaded into this process: what ctypes needs to know of both."""

import ctypes
import os
from typing import Any

from grader.emulator.toolchain import Module, runtime_library

MAX_DETAIL = 4096
KINDS = {b"p": "pointer", b"i": "int", b"f": "float", b"s": "struct"}

_size = ctypes.c_size_t
_pointer = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "start": (None, [ctypes.c_uint]),
    "map": (_pointer, [ctypes.c_int, _size, _size]),
    "allocate": (_pointer, [_size]),
    "free": (None, [_pointer]),
    "used": (_size, []),
    "peak": (_size, []),
    "launch": (
        ctypes.c_int,
        [_pointer, ctypes.c_char_p, ctypes.c_char_p, _pointer, ctypes.c_long, _size, _size, _pointer, ctypes.c_uint]
        + [ctypes.c_char_p, _size],
    ),
}


class Argument(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint), ("offset", ctypes.c_uint), ("kind", ctypes.c_char))


class Kernel(ctypes.Structure):
    """pagedlab::Kernel of include/emulated/interface.h."""

    _fields_ = (
        ("run", _pointer),
        ("arguments", ctypes.POINTER(Argument)),
        ("num_arguments", ctypes.c_uint),
        ("parameter_bytes", ctypes.c_uint),
        ("max_threads", ctypes.c_uint),
    )


class Runtime:
    """The functions pagedlab_NAME of the runtime as attributes NAME."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(runtime_library()), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        for name, (result, arguments) in _SIGNATURES.items():
            function = library[f"pagedlab_{name}"]
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class LoadedModule:
    """A module in this process; raises OSError when it needs a symbol that nobody has."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.library = ctypes.CDLL(str(module.path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        self.kernels = {}
        for name in module.kernels:
            try:
                self.kernels[name] = Kernel.in_dll(self.library, f"pagedlab_kernel_{name}")
            except ValueError:
                continue  # left out by the preprocessor
        self.anchor = ctypes.cast(self.library.pagedlab_shared, _pointer)

    def description(self) -> dict[str, dict[str, Any]]:
        """Per kernel what a client must know to launch it."""
        return {
            name: {
                "arguments": [
                    {"size": a.size, "offset": a.offset, "kind": KINDS[a.kind]}
                    for a in kernel.arguments[: kernel.num_arguments]
                ],
                "parameter_bytes": kernel.parameter_bytes,
                "shared_static": self.module.shared[name],
                "max_threads": kernel.max_threads,
            }
            for name, kernel in self.kernels.items()
        }
