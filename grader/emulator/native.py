"""The runtime library and compiled modules, loaded into this process: what ctypes needs to know of both."""

import ctypes
import os
from collections.abc import Sequence
from typing import Any

from grader.emulator.toolchain import Module, runtime_library

MAX_DETAIL = 2048
MAX_ARGUMENTS = 64
KINDS = {b"p": "pointer", b"i": "int", b"f": "float", b"s": "struct"}

_int, _size, _pointer, _text = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p


class Argument(ctypes.Structure):
    """pagedlab::Argument of include/emulated/interface.h."""

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


class Counters(ctypes.Structure):
    """pagedlab::Counters of runtime/runtime.h."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in (
            "threads", "blocks", "load_bytes", "store_bytes", "load_sectors", "store_sectors", "ideal_load_sectors",
            "ideal_store_sectors", "barriers", "shuffles", "max_thread_accesses", "accesses",
        )),
        ("arguments", ctypes.c_uint64 * 2 * MAX_ARGUMENTS),
    )  # fmt: skip

    def fields(self, num_pointers: int) -> dict[str, Any]:
        """The fields of grader.counters.Counters."""
        counts = {name: getattr(self, name) for name, *_ in self._fields_}
        return {**counts, "arguments": [list(pair) for pair in self.arguments[:num_pointers]]}


class Request(ctypes.Structure):
    """pagedlab::Request of runtime/runtime.h."""

    _fields_ = (
        ("kernel", ctypes.POINTER(Kernel)),
        ("name", _text),
        ("arguments", _text),
        ("shared_anchor", _pointer),
        ("anchor_offset", _size),
        ("static_shared", _size),
        ("dynamic_shared", _size),
        ("code_begin", _pointer),
        ("code_end", _pointer),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("order_seed", ctypes.c_uint),
        ("counters", ctypes.POINTER(Counters)),
    )


class Gemm(ctypes.Structure):
    """pagedlab::Gemm of runtime/gemm.cpp."""

    _fields_ = (
        ("trans_a", _int),
        ("trans_b", _int),
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("a", _pointer),
        ("lda", ctypes.c_int64),
        ("b", _pointer),
        ("ldb", ctypes.c_int64),
        ("c", _pointer),
        ("ldc", ctypes.c_int64),
        ("alpha", ctypes.c_float),
        ("beta", ctypes.c_float),
        ("c_is_float", _int),
    )


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "start": (None, [ctypes.c_uint]),
    "catch_faults": (None, [_int]),
    "map": (_pointer, [_int, _size, _size]),
    "allocate": (_pointer, [_size]),
    "free": (None, [_pointer]),
    "used": (_size, []),
    "peak": (_size, []),
    "fill": (ctypes.c_bool, [_pointer, _int, ctypes.c_uint, _size]),
    "copy": (ctypes.c_bool, [_pointer, _pointer, _size]),
    "move_globals": (_pointer, [_pointer, _size]),
    "launch": (_int, [ctypes.POINTER(Request), _text, _size]),
    "gemm": (ctypes.c_bool, [ctypes.POINTER(Gemm), ctypes.c_bool, _text, _size]),
}


class Runtime:
    """The function pagedlab_NAME of the runtime is the attribute NAME."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(runtime_library()), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        self._functions = {}
        for name, (result, arguments) in _SIGNATURES.items():
            function = library[f"pagedlab_{name}"]
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function

    def __getattr__(self, name: str) -> Any:
        return self._functions[name]


class LoadedModule:
    """A module in this process. Raises OSError when it needs a symbol that nobody has."""

    def __init__(self, module: Module) -> None:
        self.module = module
        library = ctypes.CDLL(str(module.path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        anchor = ctypes.cast(library.pagedlab_shared, _pointer)
        self.base = (anchor.value or 0) - module.reference
        self.requests: dict[str, Request] = {}
        for name in module.kernels:
            try:
                kernel = Kernel.in_dll(library, f"pagedlab_kernel_{name}")
            except ValueError:
                continue  # the preprocessor left this kernel out
            begin = self.base + module.code[0]
            self.requests[name] = Request(
                kernel=ctypes.pointer(kernel),
                name=name.encode(),
                shared_anchor=anchor,
                anchor_offset=module.shared_anchor,
                static_shared=module.shared_bytes,
                code_begin=begin,
                code_end=begin + module.code[1],
            )

    def kernel(self, name: str) -> Any:
        """The Kernel of this name; raises KeyError."""
        return self.requests[name].kernel.contents

    def pointers(self, name: str) -> int:
        """How many of a kernel's arguments are pointers."""
        kernel = self.kernel(name)
        return sum(argument.kind == b"p" for argument in kernel.arguments[: kernel.num_arguments])

    def description(self) -> dict[str, dict[str, Any]]:
        """Per kernel what a client must know to launch it."""
        described = {}
        for name in self.requests:
            kernel = self.kernel(name)
            arguments = [
                {"size": argument.size, "offset": argument.offset, "kind": KINDS[argument.kind]}
                for argument in kernel.arguments[: kernel.num_arguments]
            ]
            described[name] = {
                "arguments": arguments,
                "parameter_bytes": kernel.parameter_bytes,
                "shared_static": self.module.shared[name],
                "max_threads": kernel.max_threads,
            }
        return described

    def copy_globals(self, target: "LoadedModule") -> None:
        """Give another build of the same source the values of this one's variables."""
        for name, (address, size) in self.module.globals.items():
            if name in target.module.globals:
                ctypes.memmove(target.base + target.module.globals[name][0], self.base + address, size)


def launch_request(
    template: Request,
    arguments: bytes,
    grid: Sequence[int],
    block: Sequence[int],
    shared: int,
    order_seed: int,
    counters: Counters | None,
) -> Request:
    """A launch of one kernel; it is valid as long as `arguments` and `counters` are."""
    request = Request.from_buffer_copy(template)
    request.arguments = arguments
    request.grid, request.block = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block)
    request.dynamic_shared = shared
    request.order_seed = order_seed
    if counters is not None:
        request.counters = ctypes.pointer(counters)
    return request
