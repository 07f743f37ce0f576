"""Finds the tasks that a submission has not begun: the one-line stubs that still stand in its sources."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TASK = re.compile(r"s\d\d\.\d+")

_CUDA = re.compile(
    r"""
      //(?:[^\\\n]|\\.)*                                 # comments and literals come first, so that a stub
    | /\*.*?(?:\*/|\Z)                                   # inside of one is no stub
    | R"(?P<fence>[^()\\\s]{0,16})\(.*?(?:\)(?P=fence)"|\Z)
    | "(?:[^"\\\n]|\\.)*"?                               # an end may lack, so that none is looked for twice
    | (?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)*'?
    | \bNOT_IMPLEMENTED\s*\(\s*"(?P<task>s\d\d\.\d+)"
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Stub:
    """One task that is not begun; `file` is below the engine folder."""

    id: str
    file: str
    line: int


def find_stubs(engine: Path) -> list[Stub]:
    """All stubs, in order of file and line. A file that cannot be read or parsed has none: its check will say why."""
    finders = {".cu": _cuda_stubs, ".py": _python_stubs, ".toml": _toml_stubs}
    stubs = []
    for file in sorted(engine.rglob("*")):
        finder = finders.get(file.suffix)
        if finder is None or not file.is_file():
            continue
        try:
            found = sorted(finder(file.read_text(encoding="utf-8-sig")), key=lambda stub: stub[1])
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
            continue
        stubs += [Stub(task, str(file.relative_to(engine)), line) for task, line in found]
    return stubs


def _cuda_stubs(text: str) -> Iterator[tuple[str, int]]:
    for match in _CUDA.finditer(text):
        if match["task"]:
            yield match["task"], text.count("\n", 0, match.start()) + 1


def _python_stubs(text: str) -> Iterator[tuple[str, int]]:
    """`raise NotImplementedError("s08.2")`, wherever it stands."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id="NotImplementedError"), args=[ast.Constant(value=str(task))])):
                if _TASK.fullmatch(task):
                    yield task, node.lineno


def _toml_stubs(text: str) -> Iterator[tuple[str, int]]:
    """Values that are the text `TODO s03.1`; the line is the first that holds it outside of a comment."""
    tasks = {match[1] for value in _texts(tomllib.loads(text)) if (match := re.match(r"TODO (s\d\d\.\d+)", value))}
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"[^#]*?TODO (s\d\d\.\d+)", line)
        if match and match[1] in tasks:
            tasks.discard(match[1])
            yield match[1], number


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)
