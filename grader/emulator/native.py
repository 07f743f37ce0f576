"""The runtime library and compiled modules, loaded into this process: what ctypes needs to know of both."""

import ctypes
import functools
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grader.emulator.compiler.headers import GIVEN_NAME, HEADERS
from grader.emulator.compiler.symbols import is_guard
from grader.emulator.compiler.toolchain import CompiledModule, CompileError, compile_module, runtime_library

MAX_ARGUMENTS = 64
MAX_REPORTS = 64
KINDS = {b"p": "pointer", b"i": "int", b"f": "float", b"s": "struct"}

_int, _uint, _int64, _uint64 = ctypes.c_int, ctypes.c_uint, ctypes.c_int64, ctypes.c_uint64
_size, _pointer, _text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p


def _all(kind: Any, *names: str) -> list[tuple[str, Any]]:
    """Fields of the same type."""
    return [(name, kind) for name in names]


class Argument(ctypes.Structure):
    """pagedlab::Argument of include/emulated/interface.h."""

    _fields_ = (*_all(_uint, "size", "offset", "element"), ("kind", ctypes.c_char))


class Kernel(ctypes.Structure):
    """pagedlab::Kernel of include/emulated/interface.h."""

    _fields_ = (
        ("run", _pointer),
        ("arguments", ctypes.POINTER(Argument)),
        *_all(_uint, "num_arguments", "parameter_bytes", "max_threads"),
    )


class LaunchCounters(ctypes.Structure):
    """pagedlab::Counters of runtime/runtime.h."""

    _fields_ = (
        *_all(
            _uint64, "threads", "blocks", "load_bytes", "store_bytes", "load_sectors", "store_sectors",
            "ideal_load_sectors", "ideal_store_sectors", "barriers", "shuffles", "max_thread_accesses", "accesses",
        ),
        ("arguments", _uint64 * 2 * MAX_ARGUMENTS),
    )  # fmt: skip

    def packed(self, num_pointers: int) -> bytes:
        """The counts in as few bytes as they need."""
        return bytes(self)[: LaunchCounters.arguments.offset + 16 * num_pointers]

    @classmethod
    def unpacked(cls, packed: bytes, num_pointers: int) -> dict[str, Any]:
        """The fields of grader.observe.counters.Counters of what `packed` gave."""
        counters = cls.from_buffer_copy(packed.ljust(ctypes.sizeof(cls), b"\0"))
        counts = {name: getattr(counters, name) for name, *_ in cls._fields_}
        return {**counts, "arguments": [list(pair) for pair in counters.arguments[:num_pointers]]}


WARP = 32
SITE_KINDS = ("load", "store", "atomic", "barrier", "shuffle")


class WorstRequest(ctypes.Structure):
    """pagedlab::WorstRequest of runtime/runtime.h."""

    _fields_ = (
        *_all(_uint64, "cost", "ideal"),
        *_all(_uint, "lanes", "bytes"),
        ("block", _uint * 3),
        ("warp", _uint),
        ("addresses", _uint64 * WARP),
    )


class NativeSite(ctypes.Structure):
    """pagedlab::Site of runtime/runtime.h, with its counts in the place of a struct of them."""

    _fields_ = (
        ("instruction", _uint64),
        *_all(_uint, "kind", "space"),
        *_all(_uint64, "requests", "lanes", "bytes", "divergent", "cost", "ideal", "addresses"),
        ("worst", WorstRequest),
    )


class SiteTable(ctypes.Structure):
    """pagedlab::SiteTable of runtime/runtime.h."""

    _fields_ = (("lost", _uint64), ("slots", NativeSite * 1024))


class Range(ctypes.Structure):
    """pagedlab::Range of runtime/runtime.h."""

    _fields_ = _all(_uint64, "begin", "end")


class Place(ctypes.Structure):
    """pagedlab::Place of runtime/runtime.h."""

    _fields_ = (*_all(_uint * 3, "block", "thread"), ("instruction", _uint64), *_all(_int, "line", "kind"))


class Report(ctypes.Structure):
    """pagedlab::Report of runtime/runtime.h."""

    _fields_ = (
        *_all(_int, "verdict", "is_error", "space"),
        *_all(Place, "access", "other"),
        *_all(_uint64, "address", "bytes", "count"),
        ("text", ctypes.c_char * 400),
    )


class Checks(ctypes.Structure):
    """pagedlab::Checks of runtime/runtime.h."""

    _fields_ = (
        ("arrays", ctypes.POINTER(Range)),
        ("num_arrays", _uint),
        ("shared_variables", ctypes.POINTER(Range)),
        *_all(_uint, "num_shared_variables", "num_guards"),
        ("image", Range),
        ("num_reports", _uint),
        ("reports", Report * MAX_REPORTS),
    )


class Launch(ctypes.Structure):
    """pagedlab::Launch of runtime/runtime.h."""

    module: "LoadedModule"
    _fields_ = (
        ("kernel", ctypes.POINTER(Kernel)),
        *_all(_text, "name", "arguments"),
        ("shared_anchor", _pointer),
        *_all(_size, "anchor_offset", "static_shared", "dynamic_shared"),
        *_all(Range, "code", "memory"),
        ("pointed_into", ctypes.POINTER(Range)),
        ("num_pointers", _uint),
        *_all(_uint * 3, "grid", "block"),
        ("order_seed", _uint),
        ("counters", ctypes.POINTER(LaunchCounters)),
        ("checks", ctypes.POINTER(Checks)),
        ("sites", ctypes.POINTER(SiteTable)),
        ("error", _int),
        ("address", _uint64),
        ("detail", ctypes.c_char * 1024),
    )

    def use_memory(self, begin: int, size: int, allocations: Sequence[tuple[int, int]]) -> None:
        """Set all device memory, and begin and bytes of the allocation that each pointer argument points into."""
        self.memory = Range(begin, begin + size)
        self.pointed_into = _ranges(allocations[:MAX_ARGUMENTS])
        self.num_pointers = min(len(allocations), MAX_ARGUMENTS)


class Gemm(ctypes.Structure):
    """pagedlab::Gemm of runtime/gemm.cpp."""

    _fields_ = (
        *_all(_int, "trans_a", "trans_b"),
        *_all(_int64, "m", "n", "k"),
        *(field for name in "abc" for field in ((name, _pointer), (f"ld{name}", _int64))),
        *_all(ctypes.c_float, "alpha", "beta"),
        ("c_is_float", _int),
    )


class Runtime:
    """The runtime's functions."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(runtime_library()), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        self.start: Callable[[int], None] = library.pagedlab_start  # cores
        self.catch_faults: Callable[[int], None] = library.pagedlab_catch_faults  # control socket
        self.launch: Callable[[Any], None] = library.pagedlab_launch  # a Launch by reference
        self.mark: Callable[[int, int, bool], None] = library.pagedlab_mark  # begin, bytes, whether they hold something
        library.pagedlab_mark.argtypes = [_uint64, _size, ctypes.c_bool]
        self.forget: Callable[[], None] = library.pagedlab_forget
        self.gemm: Callable[[Any], None] = library.pagedlab_gemm  # a Gemm by reference


Pointer = tuple[str, int, int]
"""An argument of a launch: its name, bytes of an element, address."""


class LoadedModule:
    """A module in this process. Raises OSError when it needs a symbol that nobody has."""

    def __init__(self, module: CompiledModule) -> None:
        self.module = module
        self.source = module.source
        headers = re.findall(r'^#line \d+ "([^"\n]*h)"$', module.source, re.MULTILINE)
        self._headers = {_header_code(name): name for name in headers}
        library = _loaded(module)
        anchor = ctypes.cast(library.pagedlab_shared, _pointer)
        self.base = (anchor.value or 0) - module.reference
        self.globals = {name: (self.base + at, size) for name, (at, size) in module.globals.items()}
        """Address here and bytes of each of the module's variables."""
        self.launches: dict[str, Launch] = {}
        """What is the same in every launch of a kernel."""
        code = self.base + module.code[0]
        for name in module.kernels:
            try:
                kernel = Kernel.in_dll(library, f"pagedlab_kernel_{name}")
            except ValueError:
                continue  # the preprocessor left this kernel out
            self.launches[name] = Launch(
                kernel=ctypes.pointer(kernel),
                name=name.encode(),
                shared_anchor=anchor,
                anchor_offset=module.shared_anchor,
                static_shared=module.shared_bytes,
                code=Range(code, code + module.code[1]),
            )

    def kernel(self, name: str) -> Any:
        """The Kernel of this name; raises KeyError."""
        return self.launches[name].kernel.contents

    def launch(self, name: str) -> Launch:
        """A new launch of the kernel of this name; raises KeyError."""
        launch = Launch.from_buffer_copy(self.launches[name])
        launch.module = self
        return launch

    def arguments(self, name: str) -> list[Argument]:
        """What the kernel of this name takes."""
        kernel = self.kernel(name)
        return list(kernel.arguments[: kernel.num_arguments])

    def num_pointers(self, name: str) -> int:
        """How many of a kernel's arguments are pointers that LaunchCounters tells of."""
        return min(sum(argument.kind == b"p" for argument in self.arguments(name)), MAX_ARGUMENTS)

    def pointer_arguments(self, name: str, packed: bytes) -> list[Pointer]:
        """The pointers among the packed arguments of a kernel."""
        arguments = zip(self.arguments(name), self.module.parameters[name], strict=True)
        return [(n, a.element, struct.unpack_from("Q", packed, a.offset)[0]) for a, n in arguments if a.kind == b"p"]

    def shared_variables(self, name: str) -> dict[str, tuple[int, int]]:
        """Offset and bytes of each static shared variable that this kernel may use, by its symbol."""
        every = self.module.shared_variables.items()
        return {symbol: (at, size) for symbol, (at, size, owner) in every if owner in (name, None)}

    def description(self) -> dict[str, dict[str, Any]]:
        """Per kernel what a client must know to launch it."""
        return {
            name: {
                "arguments": [
                    {"size": a.size, "offset": a.offset, "kind": KINDS[a.kind]} for a in self.arguments(name)
                ],
                "parameter_bytes": self.kernel(name).parameter_bytes,
                "shared_static": self.module.shared[name],
                "max_threads": self.kernel(name).max_threads,
            }
            for name in self.launches
        }

    def source_lines(self, instructions: Sequence[int]) -> list[tuple[str, int]]:
        """File and line of the calls of hooks that return to these addresses; ("", 0) where unknown."""
        return _source_lines(str(self.module.path), tuple(instruction - 1 - self.base for instruction in instructions))

    def place(self, number: int) -> tuple[str, int]:
        """File and line of a numbered_line of include/emulated/interface.h; ("", 0) of nothing."""
        code, line = number >> 20, number & (1 << 20) - 1
        return self._headers.get(code, "?") if code else self.module.source_name * (line > 0), line

    def with_places(self, text: str) -> str:
        """What the runtime says, with `own.cuh:3` in the place of a header's line by its number."""
        return re.sub(r"\bline (\d{7,})", lambda found: "{}:{}".format(*self.place(int(found[1]))), text)

    def checks(self, name: str, arrays: Sequence[tuple[int, int]]) -> Checks:
        """What a checked launch of this kernel may access: arrays (address, bytes) and the module's own variables."""
        own = self.shared_variables(name)
        shared = sorted(own, key=is_guard)
        usable = sorted([*arrays, *self.globals.values()])
        return Checks(
            arrays=_ranges(usable),
            num_arrays=len(usable),
            shared_variables=_ranges([own[variable] for variable in shared]),
            num_shared_variables=len(shared),
            num_guards=sum(map(is_guard, shared)),
            image=Range(self.base, self.base + self.module.image_bytes),
        )

    def copy_globals(self, target: "LoadedModule") -> None:
        """Give another build of the same source the values of this one's variables."""
        for name, (address, size) in self.globals.items():
            if name in target.globals:
                ctypes.memmove(target.globals[name][0], address, size)


def _header_code(name: str) -> int:
    """As include/emulated/interface.h has it."""
    code = 0
    for byte in name.encode():
        code = (code * 31 + byte) % (1 << 32)
    return code % 2047 + 1


@functools.lru_cache(maxsize=4096)
def _source_lines(path: str, addresses: tuple[int, ...]) -> list[tuple[str, int]]:
    """File and line of instructions of a module, in the source that it was compiled from; ("", 0) for unknown ones.

    Of functions that were inlined there the innermost that is not one of the kit's headers.
    """
    if not addresses:
        return []
    command = ["addr2line", "-a", "-i", "-e", path, *map(hex, addresses)]
    try:
        listing = subprocess.run(command, capture_output=True, text=True).stdout.split("\n")
    except OSError:  # nobody has installed it
        listing = []
    found: list[tuple[str, int]] = []
    for row in listing:
        file, _, line = row.partition(" ")[0].rpartition(":")
        if row.startswith("0x"):
            found.append(("", 0))
            continue
        name = file.removeprefix(f"{Path.cwd()}/")
        is_kits = file.startswith(str(HEADERS)) or name.startswith(GIVEN_NAME)
        if found and not found[-1][1] and line.isdecimal() and not is_kits:
            found[-1] = name, int(line)
    return found if len(found) == len(addresses) else [("", 0)] * len(addresses)


def _ranges(places: Sequence[tuple[int, int]]) -> Any:
    """An array of Range for (begin, bytes) each."""
    return (Range * len(places))(*(Range(begin, begin + size) for begin, size in places))


def _loaded(module: CompiledModule) -> ctypes.CDLL:
    """The module's library; one that has variables from a file of its own, or two modules would share them."""
    if not module.globals:
        return ctypes.CDLL(str(module.path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    with tempfile.NamedTemporaryFile(dir=module.path.parent, suffix=".so") as file:
        file.write(module.path.read_bytes())
        file.flush()
        return ctypes.CDLL(file.name, mode=os.RTLD_NOW | os.RTLD_LOCAL)


class Kernels:
    """One compiled source in its two builds; the instrumented one is made when it is first wanted."""

    def __init__(self, source: str, options: list[str], include_dirs: list[str]) -> None:
        """Raises CompileError, also when a function is called that nobody defines."""
        self._source: tuple[str, list[str], list[str]] = (source, options, include_dirs)
        self.plain = self._build(instrumented=False)
        self._instrumented: LoadedModule | None = None

    def instrumented(self) -> LoadedModule:
        """The build with hooks at each access. Raises CompileError."""
        if self._instrumented is None:
            self._instrumented = self._build(instrumented=True)
        return self._instrumented

    def _build(self, *, instrumented: bool) -> LoadedModule:
        module = compile_module(*self._source, instrumented=instrumented)
        self._source = (module.source, self._source[1], [])  # as it was read once
        try:
            return LoadedModule(module)
        except OSError as missing:
            _, undefined, symbol = str(missing).rpartition("undefined symbol: ")
            log = f"error: {symbol} is called, but no device function" if undefined else f"error: {missing}"
            raise CompileError(log + "\n", module.command) from None
