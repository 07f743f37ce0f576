"""Expands macros that write kernels, so that the kernels stand in the text where they can be found.

The compiler expands all other macros later; those in here are expanded as it would, each on the line that calls it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_DEFINE = re.compile(r"\s*#\s*define\s+(\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)
_PART = re.compile(
    r"""(?P<skip>//(?:\\\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"|(?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)|(?P<name>[A-Za-z_]\w*)|(?P<other>[\d.][\w.]*|.)",
    re.DOTALL | re.MULTILINE,
)
_MAX_DEPTH = 16


class _Macro(NamedTuple):
    parameters: list[str] | None
    """None for one that takes no brackets."""
    body: str


def expanded(source: str) -> str:
    """The source with every call of such a macro replaced; all lines stay where they are."""
    return (
        _expanded(source, {}, 0)
        if re.search(r"#\s*define\b.*\b(?:__global__|extern)\b|#[^\n]*\\\n", source)
        else source
    )


def _expanded(text: str, macros: dict[str, _Macro], depth: int) -> str:
    pieces, position = [], 0
    for part in _PART.finditer(text):
        if part.start() < position:
            continue
        if part["directive"]:
            _define(part[0], macros)
        macro = macros.get(part["name"] or "")
        arguments, end = _arguments(text, part.end()) if macro and macro.parameters is not None else ([], part.end())
        if macro is None or depth == _MAX_DEPTH or end < 0:
            continue
        lines = "\n" * text.count("\n", part.start(), end)
        pieces += [text[position : part.start()], _expanded(_substituted(macro, arguments), macros, depth + 1), lines]
        position = end
    return "".join([*pieces, text[position:]])


def _define(directive: str, macros: dict[str, _Macro]) -> None:
    found = _DEFINE.match(directive)
    words = re.findall(r"\w+", found[3]) if found else []
    if found and ({"__global__", "extern", *macros} & set(words)):
        parameters = None if found[2] is None else [name.strip() for name in found[2].replace("\\\n", "").split(",")]
        macros[found[1]] = _Macro(parameters, re.sub(r"//[^\n]*", "", found[3].replace("\\\n", " ")).strip())


def _arguments(text: str, begin: int) -> tuple[list[str], int]:
    """The arguments of a call whose name ends at `begin`, and where it ends; -1 for no call."""
    arguments, start, depth = [], 0, 0
    for part in _PART.finditer(text, begin):
        if depth == 0 and not part[0].isspace() and part[0] != "(":
            break
        depth += (part[0] in ("(", "[", "{")) - (part[0] in (")", "]", "}"))
        if part[0] == "(" and depth == 1 and not start:
            start = part.end()
        elif start and (depth == 0 or (depth == 1 and part[0] == ",")):
            arguments.append(" ".join(text[start : part.start()].split()))
            start = part.end()
            if depth == 0:
                return arguments, part.end()
    return [], -1


def _substituted(macro: _Macro, arguments: Sequence[str]) -> str:
    names = macro.parameters or []
    if names and names[-1] == "...":
        names = [*names[:-1], "__VA_ARGS__"]
        arguments = [*arguments[: len(names) - 1], ", ".join(arguments[len(names) - 1 :])]
    values = dict(zip(names, arguments, strict=False))
    quoted = re.sub(
        r"(?<!#)#\s*(\w+)", lambda found: f'"{values[found[1]]}"' if found[1] in values else found[0], macro.body
    )
    replaced = "".join(values.get(part[0], part[0]) if part["name"] else part[0] for part in _PART.finditer(quoted))
    return re.sub(r"\s*##\s*", "", replaced)
