"""The lines of solutions that no student may get, found by their indentation alone: not as the generator finds them."""

import re
from pathlib import Path

MARKER = re.compile(r"( *)(//|#) s\d\d\.\d+(: .*)?")
HELPER = re.compile(r"( *)(def|class) _(?!_)")


def secret_regions(path: Path) -> list[list[str]]:
    """What follows a marker to the end of its function, and functions and classes with a leading underscore.

    All of a file without a marker: it is a solution's own.
    """
    regions: list[list[str]] = []
    indent = None
    lines = path.read_text(encoding="utf-8").split("\n")
    if path.name == "__init__.py":
        return []  # the starter has it as it is
    if not any(map(MARKER.fullmatch, lines)):
        return [lines]
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if line and indent is not None and (depth < indent or (not indent and line.startswith('extern "C"'))):
            indent = None
        if match := MARKER.fullmatch(line):
            indent = len(match[1])
            regions.append([])
        elif indent is None and (match := HELPER.match(line)):
            indent = len(match[1]) + 1
            regions.append([line])
        elif indent is not None:
            regions[-1].append(line)
    return regions
