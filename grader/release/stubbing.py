"""Turn one file of the solutions into the file that a student starts from. Maintainers only.

One marker line, `# s08.2: hint` (`//` in CUDA), begins the solution of a task:

- in a Python function or a CUDA kernel, to whose end it reaches: in its place stands
  `raise NotImplementedError("s08.2")` under the hint, or `NOT_IMPLEMENTED("s03.1");  // TODO s03.1: hint`;
- in a table of launch.toml, whose keys become "TODO s03.1";
- in CUDA outside of functions: what follows, up to the next kernel, are helpers of the solution and disappears.

In Python helpers need no marker: functions, classes, constants and imports disappear which nothing that is left uses.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from grader import UsageError

LONGEST_LINE = 120

_MARKER = re.compile(r"(?P<indent> *)(?:#|//) (?P<id>s\d\d\.\d+)(: (?P<hint>\S.*))?")
_KERNEL = re.compile(r'extern "C" ')

Definition = ast.FunctionDef | ast.ClassDef
Import = ast.Import | ast.ImportFrom


class StarterError(UsageError):
    """A solution's markers are wrong; the message names file and line."""


@dataclass(frozen=True)
class Edit:
    """Lines first … last, counted from 1, become `new`."""

    first: int
    last: int
    new: tuple[str, ...] = ()


def stub_text(text: str, name: str) -> str:
    """The starter's version of a solution file; `name` shows the language and is named in errors."""
    edits = {".py": _python_bodies, ".cu": _cuda_bodies, ".cuh": _cuda_bodies, ".toml": _toml_values}
    ending = name[name.rfind(".") :]
    if ending not in edits:
        return text
    try:
        text = _apply(text, edits[ending](text.split("\n"), name))
        return prune(text) if ending == ".py" else text
    except (SyntaxError, tomllib.TOMLDecodeError) as error:
        raise StarterError(f"{name}: cannot be parsed: {error}.") from error


def has_task(text: str) -> bool:
    """Whether a file of the starter has something left to do."""
    return re.search(r"TODO s\d\d\.\d+", text) is not None


def _apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with these edits, which must not overlap. Where lines vanish, the wider of the two gaps around stays."""
    source, lines, done = text.split("\n"), list[str](), 0
    for edit in sorted(edits, key=lambda edit: edit.first):
        lines += source[done : edit.first - 1]
        lines += edit.new
        done = edit.last
        if not edit.new:
            before, after = _blank_lines(reversed(lines)), _blank_lines(source[done:])
            lines += [""] * max(0, after - before)
            done += after
    return "\n".join(lines + source[done:]).rstrip("\n") + "\n"


def _blank_lines(lines: Iterable[str]) -> int:
    """How many lines at the beginning are empty."""
    count = 0
    for line in lines:
        if line:
            break
        count += 1
    return count


def _markers(lines: list[str]) -> Iterator[tuple[int, re.Match[str]]]:
    for number, line in enumerate(lines, 1):
        if match := _MARKER.fullmatch(line):
            yield number, match


def _todo(marker: re.Match[str]) -> str:
    return f"TODO {marker['id']}" + (f": {marker['hint']}" if marker["hint"] else "")


# CUDA and TOML


def _cuda_bodies(lines: list[str], name: str) -> Iterator[Edit]:
    done = 0
    for number, marker in _markers(lines):
        if number <= done:
            raise StarterError(
                f"{name}:{number}: the solution that begins at an earlier marker reaches beyond this one."
            )
        if marker["indent"]:
            done = next((n for n in range(number, len(lines)) if lines[n] == "}"), 0)
            if not done:
                raise StarterError(f"{name}:{number}: no line `}}` follows, which would end the function.")
            yield Edit(number, done, (f'{marker["indent"]}NOT_IMPLEMENTED("{marker["id"]}");  // {_todo(marker)}',))
        else:
            done = next((n for n in range(number, len(lines)) if _KERNEL.match(lines[n])), len(lines))
            while lines[done - 1].startswith("//"):  # the next kernel's own comment
                done -= 1
            yield Edit(number, done - _blank_lines(reversed(lines[:done])))


def _toml_values(lines: list[str], name: str) -> Iterator[Edit]:
    for number, marker in _markers(lines):
        end = next((n for n in range(number, len(lines)) if lines[n].startswith("[")), len(lines))
        end -= _blank_lines(reversed(lines[:end]))
        keys = tomllib.loads("\n".join(lines[number:end]))
        yield Edit(number, end, tuple(f'{key} = "TODO {marker["id"]}"' for key in keys))


# Python


def _python_bodies(lines: list[str], name: str) -> Iterator[Edit]:
    functions = [node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.FunctionDef)]
    ends: set[int] = set()
    for number, marker in _markers(lines):
        around = [node for node in functions if node.lineno < number < _end(node)]
        if not around:
            raise StarterError(f"{name}:{number}: this marker is in no function.")
        end = _end(max(around, key=lambda node: node.lineno))
        if end in ends:
            raise StarterError(f"{name}:{number}: this function has a marker already.")
        ends.add(end)
        indent = marker["indent"]
        stub = (f"{indent}# {_todo(marker)}", f'{indent}raise NotImplementedError("{marker["id"]}")')
        yield Edit(number, end, stub)


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def prune(text: str) -> str:
    """The Python module without what no exercise of it needs.

    An exercise is a function that raises NotImplementedError with a task's id. It needs what its signature uses, and
    the classes and constants of the module that its docstring speaks of. Imports for their effect (`noqa: F401`) stay.
    """
    module = ast.parse(text)
    return _apply(text, _removals(module.body, text.split("\n"), _needed(module)))


@dataclass
class _Needed:
    """What stays: definitions, the names that they use, and the words of their docstrings."""

    definitions: set[ast.stmt]
    names: set[str]
    words: set[str]


def _needed(module: ast.Module) -> _Needed:
    """Go from the exercises to what they need, to what that needs, and so on."""
    needed = _Needed(set(), set(), _capitalised(ast.get_docstring(module) or ""))
    grown = True
    while grown:
        grown = False
        for node in _definitions(module.body):
            is_needed = _has_exercise(node) or (needed.names | needed.words) & _bound(node)
            if is_needed and node not in needed.definitions:
                needed.definitions.add(node)
                _add_uses(node, needed)
                grown = True
    for node in module.body:
        if isinstance(node, ast.If) and _bodies_needed(node, needed.names):
            _add_uses(node.test, needed)
    return needed


def _definitions(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Functions, classes and assignments of a module, and the methods of the classes that have an exercise."""
    for node in body:
        if isinstance(node, Definition | ast.Assign | ast.AnnAssign):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _methods(node)


def _methods(node: ast.AST) -> set[ast.stmt]:
    """The methods of a class that has an exercise: it is the student's, so each of them is needed for itself or not."""
    if not isinstance(node, ast.ClassDef) or not _has_exercise(node):
        return set()
    return {child for child in node.body if isinstance(child, ast.FunctionDef)}


def _has_exercise(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Raise) and ast.unparse(part).startswith("raise NotImplementedError('s")
        for part in ast.walk(node)
    )


def _bound(node: ast.stmt) -> set[str]:
    """The names that a definition defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
    return set()


def _add_uses(node: ast.AST, needed: _Needed) -> None:
    """Note the names in a definition, those in quoted annotations too, and the words of its docstrings."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            needed.names.add(name)
        case ast.Expr(value=ast.Constant(value=str(docstring))):
            needed.words |= _capitalised(docstring)
        case ast.arg(annotation=ast.Constant(value=str(quoted))):
            _add_uses(ast.parse(quoted), needed)
        case ast.FunctionDef(returns=ast.Constant(value=str(quoted))):
            _add_uses(ast.parse(quoted), needed)
    methods = _methods(node)
    for child in ast.iter_child_nodes(node):
        if child not in methods:
            _add_uses(child, needed)


def _capitalised(docstring: str) -> set[str]:
    """The words of a docstring that may be classes and constants: a contract names what it raises and returns."""
    return set(re.findall(r"\b[A-Z]\w+", docstring))


def _removals(body: list[ast.stmt], lines: list[str], needed: _Needed) -> Iterator[Edit]:
    """Edits that take what is not needed out of a module's or a class's body."""
    for node, following in zip_longest(body, body[1:]):
        if isinstance(node, Import):
            yield from _import_without(node, lines, needed.names)
        elif isinstance(node, ast.If) and not _bodies_needed(node, needed.names):
            yield Edit(node.lineno, _end(node))
        elif isinstance(node, ast.If):
            yield from _removals(node.body, lines, needed)
        elif isinstance(node, Definition | ast.Assign | ast.AnnAssign) and node not in needed.definitions:
            last = following if following is not None and _is_text(following) else node
            yield Edit(_first_line(node, lines), _end(last))
        elif isinstance(node, ast.ClassDef) and _has_exercise(node):
            yield from _removals([child for child in node.body if child in _methods(node)], lines, needed)


def _bodies_needed(node: ast.If, names: set[str]) -> bool:
    """Whether something is left of `if TYPE_CHECKING:` and its imports."""
    return any(not isinstance(child, Import) or _imported(child, names) for child in node.body)


def _imported(node: Import, names: set[str]) -> list[ast.alias]:
    return [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in names]


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is the docstring of the constant before it."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _first_line(node: ast.stmt, lines: list[str]) -> int:
    """Where a definition begins, with its decorators and the comment above it."""
    first = node.decorator_list[0].lineno if isinstance(node, Definition) and node.decorator_list else node.lineno
    while lines[first - 2].lstrip().startswith("#"):
        first -= 1
    return first


def _import_without(node: Import, lines: list[str], names: set[str]) -> Iterator[Edit]:
    """The import of what is used; nothing to change where that is all, or where it is imported for its effect."""
    left = _imported(node, names)
    if "noqa: F401" in lines[node.lineno - 1] or len(left) == len(node.names):
        return
    if not left:
        yield Edit(node.lineno, _end(node))
        return
    node.names = left
    yield Edit(node.lineno, _end(node), _import_lines(node, " " * node.col_offset))


def _import_lines(node: Import, indent: str) -> tuple[str, ...]:
    line = indent + ast.unparse(node)
    if len(line) <= LONGEST_LINE:
        return (line,)
    head, _, names = line.partition(" import ")
    return (f"{head} import (", *(f"{indent}    {name}," for name in names.split(", ")), f"{indent})")
