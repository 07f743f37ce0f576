"""What the checker found, for people: where it was, which element of which array, what to do.

A report is a dict: {"verdict", "is_error": bool (a remark costs no points), "kernel", "count": how often it was seen,
"access": PLACE, "other": PLACE of the access that it conflicts with, or null, "address": such as "x[12]" or
"shared tile[3]", "message": all of it in a few sentences}. A PLACE is {"kind": "load" | "store" | "atomic" | "",
"file", "line", "text": of the line, empty if it is not in the source itself, "block": [x, y, z], "thread": [x, y, z]}.
"""

import re
from collections.abc import Sequence
from typing import Any

from grader.emulator.arena import Arena
from grader.emulator.compiler.headers import GIVEN_NAME
from grader.emulator.compiler.rewriter import line_of
from grader.emulator.compiler.symbols import is_guard
from grader.emulator.native import Launch, LoadedModule, Place, Pointer, Report
from grader.emulator.reports.declarations import dynamic_array, num_indices, static_array
from grader.emulator.reports.messages import DYNAMIC, FAR_OFF, NO_DEVICE_MEMORY, depth, message

VERDICTS = ("OUT_OF_BOUNDS", "MISALIGNED_ACCESS", "DATA_RACE", "UNINITIALISED_READ", "BARRIER_DIVERGENCE")
VERDICT_ORDER = ("OUT_OF_BOUNDS", "MISALIGNED_ACCESS", "BARRIER_DIVERGENCE", "DATA_RACE", "UNINITIALISED_READ")
GLOBAL, STATIC_SHARED, DYNAMIC_SHARED, ELSEWHERE = range(4)
KINDS = ("load", "store", "load", "store", "atomic", "atomic")
NOBODY = -2
MAX_STRAY = 16 << 30
"""So many bytes from a pointer an address may be that was made of it: an index of 32 bits goes no further."""
NULL_PAGES = 1 << 20
"""An address below can only be made of a null pointer."""


class Memory:
    """Names of addresses, as one launch of a kernel sees them."""

    def __init__(
        self,
        arena: Arena,
        arrays: Sequence[tuple[int, int]],
        module: LoadedModule,
        launch: Launch,
        pointers: Sequence[Pointer],
    ) -> None:
        """`arrays` are begin and bytes of what the launch may use, `pointers` are among its arguments."""
        self.module = module
        self.kernel = launch.name.decode()
        self._arena = arena
        self._dynamic_bytes = launch.dynamic_shared
        self._arrays = arrays
        self._arguments = pointers

    def describe(self, space: int, address: int, size: int) -> tuple[str, str]:
        """The name of what is at an address, and how far it is out of bounds (empty when it is not)."""
        if space == STATIC_SHARED:
            return self._static_shared(address, size)
        if space == DYNAMIC_SHARED:
            return self._dynamic_shared(address, size)
        return self._global(address, size)

    def indexed(self, text: str) -> str:
        """The array that a line with this text indexes, where there is just one; else an empty text."""
        pointers = [name for name, _, _ in self._arguments]
        names = [name for name in _indexed_arrays(self.module.source, text) if name not in pointers]
        shared = {variable_name(symbol) for symbol in self.module.module.shared_variables}
        if len(names) != 1:
            return ""
        return f"shared {names[0]}" if names[0] in shared else names[0]

    def _static_shared(self, offset: int, size_of_access: int) -> tuple[str, str]:
        offset = _signed(offset)
        variables = self.module.shared_variables(self.kernel)
        places = {symbol: place for symbol, place in variables.items() if not is_guard(symbol)}
        for symbol, (begin, size) in places.items():
            if begin <= offset < begin + size:
                return f"shared {self._element(variable_name(symbol), size, offset - begin, size_of_access)}", ""
        if not places:
            return "shared memory", "this kernel has no shared variables"
        nearest = min(places, key=lambda symbol: _distance(offset, *places[symbol]))
        begin, size = places[nearest]
        name = variable_name(nearest)
        array = static_array(self.module.source, self.kernel, name, size)
        return f"shared {name}", _outside(offset, begin, size, f"shared {name}", array.element if array else 1)

    def _dynamic_shared(self, offset: int, size: int) -> tuple[str, str]:
        offset = _signed(offset)
        array = dynamic_array(self.module.source, self.kernel)
        element = array.indexed(offset) if array else ""
        name = f"shared {element}" if element else f"byte {offset} of dynamic shared memory"
        inside = 0 <= offset <= self._dynamic_bytes - size
        return name, "" if inside else f"but the launch gives {self._dynamic_bytes:,} bytes {DYNAMIC}"

    def _element(self, name: str, size: int, offset: int, size_of_access: int) -> str:
        """What is at a byte of a static shared variable; as the source declares it, or else in units of the access."""
        array = static_array(self.module.source, self.kernel, name, size)
        if size == size_of_access and array is None:
            return name
        return (array.indexed(offset) if array else "") or f"{name}[{offset // size_of_access}]"

    def _global(self, address: int, size_of_access: int) -> tuple[str, str]:
        named = [(begin, size, name, element) for name, element, begin, size in self._named()]
        inside = [entry for entry in named if entry[0] <= address < entry[0] + entry[1]]
        if inside:
            begin, size, name, element = inside[0]
            over = address + size_of_access - begin - size
            crossing = f"{over} of its {size_of_access} bytes are past the end: {_has(name, size, element)}"
            return f"{name}[{(address - begin) // element}]", crossing if over > 0 else ""
        in_arena = self._arena.base <= address < self._arena.base + self._arena.size
        if self._arena.freed(address) is not None or not in_arena:
            return self._no_memory(address, named)
        if not named:
            return f"address {address:#x}", self._arena.describe(address)
        begin, size, name, element = min(named, key=lambda entry: _distance(address, entry[0], entry[1]))
        return f"{name}[{(address - begin) // element}]", _outside(address, begin, size, name, element)

    def _no_memory(self, address: int, named: list[tuple[int, int, str, int]]) -> tuple[str, str]:
        """As `describe`, of memory that was freed or never was the device's: by the pointer that led there."""
        arrays = {begin: size for begin, size, _, _ in named}
        name, element, pointer = min(
            self._arguments, key=lambda argument: abs(address - argument[2]), default=("", 1, address - MAX_STRAY)
        )
        if pointer != 0 and address < NULL_PAGES:
            return f"address {address:#x}", "a null pointer"
        if abs(address - pointer) >= MAX_STRAY:
            return f"address {address:#x}", NO_DEVICE_MEMORY
        what = f"{name}[{(address - pointer) // element}]"
        if pointer in arrays:
            return what, f"{FAR_OFF}, {_outside(address, pointer, arrays[pointer], name, element)}"
        if pointer == 0:
            return what, f"and {name} is a null pointer"
        is_freed = self._arena.freed(pointer) is not None
        return what, f"and {name} was freed before the launch" if is_freed else f"and {name} is {NO_DEVICE_MEMORY}"

    def _named(self) -> list[tuple[str, int, int, int]]:
        """(name, bytes of an element, begin, bytes) of each array, those of arguments first."""
        found = []
        unnamed = dict(self._arrays)
        for name, element, pointer in self._arguments:
            for begin, size in self._arrays:
                if begin <= pointer < begin + max(size, 1):
                    found.append((name, element, pointer, begin + size - pointer))
                    unnamed.pop(begin, None)
        variables = [(name, 1, begin, size) for name, (begin, size) in self.module.globals.items()]
        rest = [(f"an array of {size} bytes", 1, begin, size) for begin, size in unnamed.items()]
        return [*found, *variables, *rest]


def readable(report: Report, memory: Memory) -> dict[str, Any]:
    """One report of the checker as a dict, see the module's docstring."""
    verdict = VERDICTS[report.verdict]
    access = _place(report.access, memory)
    other = None if report.other.kind == NOBODY else _place(report.other, memory)
    name, outside = "", ""
    if not report.text or report.space != ELSEWHERE:
        name, outside = memory.describe(report.space, report.address, report.bytes)
    text = memory.module.with_places(report.text.decode("utf-8", "replace"))
    if text and verdict == "OUT_OF_BOUNDS":
        name = memory.indexed(access["text"])
        is_row = text.count("[") < num_indices(memory.module.source, memory.kernel, name.removeprefix("shared "))
        whole = f"a row of {name}" if is_row else name
        text = text.replace(" of an array", f" of {whole}, an array") if name else text
    found = {
        "verdict": verdict,
        "is_error": bool(report.is_error),
        "kernel": memory.kernel,
        "count": report.count,
        "access": access,
        "other": other,
        "address": name,
    }
    if (
        verdict == "BARRIER_DIVERGENCE"
        and other
        and other["line"]
        and depth(memory.module.source, other) > depth(memory.module.source, access)
    ):
        found |= {"access": other, "other": access}  # the one in the condition is the wrong one
    found["message"] = message(found, outside, text, report.bytes, memory.module.source)
    return found


def merged(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first of each kind and line, with the count of all; errors first, causes before what follows from them."""
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    for report in reports:
        where = report["access"]["file"], report["access"]["line"]
        key = report["verdict"], report["is_error"], report["kernel"], *where
        if key in kept:
            kept[key]["count"] += report["count"]
        else:
            kept[key] = report
    return sorted(kept.values(), key=lambda report: (not report["is_error"], VERDICT_ORDER.index(report["verdict"])))


def _place(place: Place, memory: Memory) -> dict[str, Any]:
    file, line = memory.module.place(place.line)
    if place.instruction and (not line or file.startswith(GIVEN_NAME)):
        [(file, line)] = memory.module.source_lines([place.instruction])
    file = file or memory.module.module.source_name
    kind = KINDS[place.kind] if place.kind >= 0 else ""
    return {
        "kind": kind,
        "file": file,
        "line": line,
        "text": line_of(memory.module.source, file, line),
        "block": list(place.block),
        "thread": list(place.thread),
    }


def _indexed_arrays(source: str, text: str) -> list[str]:
    """Names that the source declares with brackets, and that have an index in this line of it."""
    words = re.findall(r"\b([A-Za-z_]\w*)\s*\[", text)
    return [name for name in dict.fromkeys(words) if re.search(rf"[\w>,]\s+{name}\s*\[", source)]


def _outside(address: int, begin: int, size: int, name: str, element: int) -> str:
    has = _has(name, size, element)
    if address < begin:
        return f"{begin - address:,} bytes before its begin: {has}"
    past = address - begin - size
    return f"{f'{past:,} bytes' if past else 'just'} past its end: {has}"


def _has(name: str, size: int, element: int) -> str:
    if element == 1:
        return f"{name} has {size:,} bytes"
    return f"{name} has {size // element:,} element{'s' if size // element != 1 else ''}"


def _distance(address: int, begin: int, size: int) -> int:
    return begin - address if address < begin else max(address - begin - size, 0)


def _signed(offset: int) -> int:
    return offset - 2**64 if offset >= 2**63 else offset


def variable_name(symbol: str) -> str:
    """The name of a variable in a mangled symbol: its last part."""
    name = symbol
    for length in re.finditer(r"\d+", symbol):
        part = symbol[length.end() : length.end() + int(length[0])]
        if len(part) == int(length[0]):
            name = part
    return name
