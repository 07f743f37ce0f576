"""How many lines files and functions have."""

import ast
import re
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from grader import KIT

PYTHON = (".py",)
C = (".cu", ".cuh", ".cpp", ".h")

_NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^()\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'""", re.DOTALL
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_ALIGNMENT = re.compile(r"\balignas\([^()]*\)")
_SCOPE = re.compile(r"\b(?:namespace|struct|class|union|enum|extern)\b[^()=]*$")
_NAME = re.compile(r"(?!__launch_bounds__)((?<![\w:~])[\w:~]+|operator\W+)\s*\(")


class Function(NamedTuple):
    line: int
    name: str
    lines: int
    """From its first line, without decorators, to its closing one."""


def source_files(*endings: str) -> list[str]:
    """The files that git tracks, from the kit's root, whose names end so."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=KIT, capture_output=True, text=True, check=True).stdout
    return [name for name in listing.split("\0") if name.endswith(endings) and (KIT / name).is_file()]


def functions(name: str, text: str) -> list[Function]:
    """The functions of a source file, those inside of functions included in Python."""
    return list(_python_functions(text) if name.endswith(PYTHON) else _c_functions(text))


def _python_functions(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)


def _c_functions(text: str) -> Iterator[Function]:
    """Bodies in braces whose head has parentheses, in the file's own scope, a namespace or a class."""
    code = _DIRECTIVE.sub(_blank, _NOT_CODE.sub(_blank, text))
    start = place = 0
    while found := re.compile(r"[{};]").search(code, place):
        head, place = code[start : found.start()], found.end()
        if found[0] == "{" and not _SCOPE.search(_ALIGNMENT.sub("", head)):
            place = _closing(code, found.start())
            if code[place:].lstrip().startswith((",", "{")):  # a constructor's initialiser; its body comes
                continue
            if name := _NAME.search(head):
                first = start + len(head) - len(head.lstrip())
                yield Function(code.count("\n", 0, first) + 1, name[1], code.count("\n", first, place) + 1)
        start = place


def _closing(code: str, opening: int) -> int:
    """The place after the brace that closes this one."""
    depth = 0
    for brace in re.compile(r"[{}]").finditer(code, opening):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    raise ValueError(f"the brace in line {code.count(chr(10), 0, opening) + 1} is never closed")


def _blank(found: re.Match[str]) -> str:
    """As many lines, with nothing in them."""
    return "\n" * found[0].count("\n") or " "
