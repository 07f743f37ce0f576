"""What the Python of a host stage may not do, found by reading it: a matrix product on the host, a foreign import.

Only says early and with a line number what the repetition with empty kernels would find too.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from grader.failure import Failure

PRODUCTS = {"dot", "vdot", "inner", "matmul", "einsum", "tensordot", "multi_dot"}
PRODUCT_FILES_ALLOWED = {"rope", "weights"}
"""Modules that compute tables or read files, once: an outer product there is no shortcut."""

PACKAGES = {"engine", "given", "numpy", "ml_dtypes", "pycuda"}
REFUSED_STANDARD = {"ctypes", "_ctypes", "multiprocessing", "subprocess", "socket"}


def refuse_violations(engine: Path, module: str) -> None:
    """Raise Failure for the first violation in a module of the engine and in those of the engine that it imports.

    A file that is missing or cannot be parsed is left to the import, which says so.
    """
    waiting, seen = [module], set()
    while waiting:
        name = waiting.pop()
        file = engine / f"{name}.py"
        if name in seen or not name.isidentifier() or not file.is_file():
            continue
        seen.add(name)
        source = file.read_bytes()
        if b"\0" in source:  # Python's own message names no file
            line = source[: source.index(b"\0")].count(b"\n") + 1
            raise Failure("RUNTIME_ERROR", f"engine/{name}.py, line {line}: holds a NUL; save the file as UTF-8 text.")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for line, sentence in _violations(tree, name):
            raise Failure("RUNTIME_ERROR", f"engine/{name}.py, line {line}: {sentence}")
        waiting += _engine_imports(tree)


def parameter_names(engine: Path, target: str) -> list[str]:
    """The names of the parameters of "module.function" of the engine, as far as reading its file tells them."""
    module, _, function = target.partition(".")
    try:
        body = ast.parse((engine / f"{module}.py").read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return [parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args)]
    return []


@cache
def method_parameters(engine: Path, class_name: str, method: str) -> list[str]:
    """The names of a method's parameters after `self`, as far as reading the engine's files tells them."""
    for file in sorted(engine.glob("*.py")):
        source = file.read_bytes()
        if f"class {class_name}".encode() not in source:
            continue
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == class_name]
        for node in (node for found in classes for node in found.body):
            if isinstance(node, ast.FunctionDef) and node.name == method:
                return [parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args)][1:]
    return []


def _violations(tree: ast.Module, name: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        for package in _imported_packages(node):
            if package == "pycuda" and _is_private(node):
                yield _line(node), "imports a private part of pycuda; only its public names are there on every device."
            if package not in PACKAGES and (package not in sys.stdlib_module_names or package in REFUSED_STANDARD):
                allowed = ", ".join(sorted(PACKAGES - {"engine"}))
                yield _line(node), f"imports {package}; the engine may use {allowed} and Python's own modules."
        if name not in PRODUCT_FILES_ALLOWED and (product := _product(node)):
            yield _line(node), f"{product} is a product on the host; the engine must compute with its kernels."


def _is_private(node: ast.AST) -> bool:
    """Whether an import names a module or an object that begins with an underscore."""
    names = [alias.name for alias in getattr(node, "names", ())] + [getattr(node, "module", None) or ""]
    return any(part.startswith("_") for name in names for part in name.split("."))


def _imported_packages(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [(node.module or "").partition(".")[0]]
    return []


def _product(node: ast.AST) -> str:
    """How the source spells a matrix product; empty when the node is none."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
        return "@"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PRODUCTS:
        owner = f"{node.func.value.id}." if isinstance(node.func.value, ast.Name) else "…."
        return f"{owner}{node.func.attr}(…)"
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "numpy":
        return next((alias.name for alias in node.names if alias.name in PRODUCTS), "")
    return ""


def _engine_imports(tree: ast.Module) -> list[str]:
    """Modules of the engine that a module imports, wherever in it."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".") if node.module else []
            if node.level == 1 or parts[:1] == ["engine"]:
                inner = parts if node.level else parts[1:]
                names += inner[:1] or [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [a.name.split(".")[1] for a in node.names if a.name.startswith("engine.")]
    return names


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)
