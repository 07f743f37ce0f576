"""Where a compiled module keeps its shared and global variables, by its symbol table."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grader.emulator.compiler.object_file import CODE, THREAD_LOCAL, read_object


def is_guard(symbol: str) -> bool:
    """Whether g++ keeps in this variable whether it has initialised another: those of a class such as bf16."""
    return symbol.startswith(("_ZGV", "__tls_guard"))


def read_symbols(path: Path, kernels: Sequence[str], constants: Sequence[str]) -> dict[str, Any]:
    """Shared and global variables of a module, by its symbol table.

    A shared variable of a function that is not a kernel counts for every kernel, since any may call it.
    """
    sections, symbols, _ = read_object(path.read_bytes())
    thread_local = {symbol.name: symbol for symbol in symbols if symbol.section == THREAD_LOCAL and symbol.size}
    anchor = next((symbol.address for name, symbol in thread_local.items() if "pagedlab_shared_anchor" in name), 0)
    shared = {name: symbol for name, symbol in thread_local.items() if "pagedlab_shared_anchor" not in name}
    counted = {name: symbol for name, symbol in shared.items() if not is_guard(name)}
    owners = {name: next((k for k in kernels if re.match(rf"_Z+{len(k)}{k}E", name)), None) for name in shared}
    variables = {re.sub(r"^_ZL\d+", "", symbol.name): symbol for symbol in symbols}  # static and const ones too
    return {
        "shared": {
            kernel: sum(s.size for name, s in counted.items() if owners[name] in (kernel, None)) for kernel in kernels
        },
        "shared_bytes": max((symbol.address + symbol.size for symbol in thread_local.values()), default=0),
        "shared_anchor": anchor,
        "shared_variables": {name: (s.address, s.size, owners[name]) for name, s in shared.items()},
        "globals": {n: (s.address, s.size) for n, s in variables.items() if s.section == "pagedlab_globals" and s.size},
        "globals_extent": sections.get("pagedlab_globals", (0, 0)),
        "constants": {n: (s.address, s.size) for n, s in variables.items() if n in constants},
        "code": sections[CODE],
        "image_bytes": max(address + size for address, size in sections.values()),
        "reference": next(symbol.address for symbol in symbols if symbol.name == "pagedlab_shared"),
    }
