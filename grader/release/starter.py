"""Makes starter/ from solutions/: each marked region of a solution becomes one line to replace. Maintainers only.

A region lies between `// solution s03.1: hint` and `// end solution` (`#` in Python and TOML). Inside a function it
becomes

    NOT_IMPLEMENTED("s03.1");  // TODO s03.1: hint                 in CUDA
    raise NotImplementedError("s08.2")  # TODO s08.2: hint         in Python

in TOML the value of each of its keys becomes "TODO s03.1". A region of helpers (not indented, or nothing but functions
and classes) disappears. All else is copied.
"""

import argparse
import ast
import json
import re
import textwrap
import tomllib
from pathlib import Path

from grader import KIT, UsageError
from grader.release.release import generated_hashes, sha256, write

RECORD = ".generated.json"
"""In starter/: {"files": {path below starter/: sha256 of what was last generated}}."""

_START = re.compile(r"(?P<indent> *)(?P<comment>//|#) solution (?P<id>s\d\d\.\d+)(: (?P<hint>\S.*))?")
_END = re.compile(r" *(//|#) end solution")


class StarterError(UsageError):
    """A solution's markers are wrong; the message names file and line."""


def generate(solutions: Path = KIT / "solutions") -> dict[str, bytes]:
    """The files of the starter by their path below starter/. Raises StarterError."""
    paths = [path for path in sorted(solutions.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return {
        path.relative_to(solutions).as_posix(): stub_text(path.read_text(encoding="utf-8"), path.name).encode()
        for path in paths
    }


def stub_text(text: str, name: str) -> str:
    """The starter's version of one solution file; `name` tells the language and is named in errors."""
    lines: list[str] = []
    start, begun, region = None, 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        marker, end = _START.fullmatch(line), _END.fullmatch(line)
        if (marker and start) or (end and not start):
            raise StarterError(f"{name}:{number}: this marker has no partner; each region has a start and an end.")
        if marker:
            start, begun, region = marker, number, []
        elif end and start:
            try:
                lines += stub_lines(start, region, name)
            except (SyntaxError, tomllib.TOMLDecodeError) as error:
                raise StarterError(f"{name}:{begun}: this region cannot be parsed: {error}.") from error
            start = None
        elif start:
            region.append(line)
        elif line or not _after_removed_region(lines):
            lines.append(line)
    if start:
        raise StarterError(f"{name}:{begun}: this region has no `end solution`.")
    return "\n".join(line for line in lines if line != _REMOVED).rstrip("\n") + "\n"


_REMOVED = "\0"  # stands where a region of helpers was, so that the blank lines around it become one gap


def _after_removed_region(lines: list[str]) -> bool:
    return len(lines) > 1 and lines[-1] == _REMOVED and lines[-2] == ""


def stub_lines(start: re.Match[str], region: list[str], name: str) -> list[str]:
    """What replaces one region."""
    indent, stub = start["indent"], start["id"]
    todo = f"TODO {stub}" + (f": {start['hint']}" if start["hint"] else "")
    source = textwrap.dedent("\n".join(region))
    if name.endswith(".toml"):
        return [f'{indent}{key} = "TODO {stub}"' for key in tomllib.loads(source)]
    if not indent or (name.endswith(".py") and _only_definitions(source)):
        return [_REMOVED]
    if name.endswith(".py"):
        return [f'{indent}raise NotImplementedError("{stub}")  # {todo}']
    return [f'{indent}NOT_IMPLEMENTED("{stub}");  // {todo}']


def _only_definitions(source: str) -> bool:
    return all(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.parse(source).body)


def write_starter(files: dict[str, bytes], starter: Path = KIT / "starter") -> list[str]:
    """Bring starter/ up to date; return a line per change. A file that differs from what was last generated is kept."""
    record = starter / RECORD
    before = generated_hashes(record.read_bytes() if record.exists() else b"")
    done = []
    for name in sorted(before.keys() | files.keys()):
        path, content = starter / name, files.get(name)
        current = path.read_bytes() if path.exists() else None
        if current == content:
            continue
        if current is not None and sha256(current) != before.get(name):
            done.append(f"Kept {name}: it was changed by hand. Delete it to have it generated.")
        elif content is None:
            path.unlink()
            done.append(f"Removed {name}: it is no longer in solutions/.")
        else:
            write(path, content)
            done.append(f"Wrote {name}.")
    write(
        record, (json.dumps({"files": {name: sha256(files[name]) for name in sorted(files)}}, indent=1) + "\n").encode()
    )
    return done


def stale(files: dict[str, bytes], starter: Path = KIT / "starter") -> list[str]:
    """Names of what is missing in starter/, differs from `files`, or is there without being generated."""
    present = {path.relative_to(starter).as_posix() for path in starter.rglob("*") if path.is_file()}
    present = {name for name in present if "__pycache__" not in name} - {RECORD}
    contents = {name: (starter / name).read_bytes() for name in present}
    return sorted(name for name in contents | files if contents.get(name) != files.get(name))


def run_starter(arguments: argparse.Namespace) -> int:
    """`python -m grader starter [--check]`: exit code 0, or 1 when --check finds a difference."""
    files = generate()
    if arguments.check:
        names = stale(files)
        print("\n".join(f"starter/{name} is not what solutions/ gives; run make starter." for name in names))
        return 1 if names else 0
    print("\n".join(write_starter(files) or ["starter/ is up to date."]))
    return 0
