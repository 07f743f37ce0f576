"""The loops of a source file, and those of them that cannot end: for a kernel that does not return."""

import re
from collections.abc import Iterator
from typing import NamedTuple

MOST_LINES = 8


class Loop(NamedTuple):
    """The first line of a loop, and why it does not end, where that can be read from this line."""

    line: int
    text: str
    reason: str


_HEAD = re.compile(r"\b(?:for|while)\s*\(")
_COMMENT = re.compile(r"//.*")
_NUMBER = r"(?P<name>\w+)"
_RULES = (
    (
        rf";\s*{_NUMBER}\s*>=\s*0\s*;\s*(?P=name)\s*(?:/=|>>=|=\s*(?P=name)\s*(?:/|>>))",
        "{name} is halved and never gets below 0: let the loop end at {name} > 0",
    ),
    (
        rf"(?:unsigned(?: int| long)*|size_t|uint\d+_t)\s+{_NUMBER}\s*=[^;]*;\s*(?P=name)\s*>=\s*0\s*;",
        "{name} is unsigned, which is never below 0: declare it as int",
    ),
    (
        rf"=\s*0\s*;\s*{_NUMBER}\s*<[^;]*;\s*(?P=name)\s*(?:\*=|<<=|=\s*(?P=name)\s*(?:\*|<<))",
        "{name} begins at 0 and is multiplied, which leaves it 0: begin at 1",
    ),
    (
        rf";\s*{_NUMBER}\s*<[^;]*;\s*(?:(?P=name)\s*--|--\s*(?P=name)|(?P=name)\s*-=)",
        "{name} moves away from its bound",
    ),
    (
        rf";\s*{_NUMBER}\s*>=?[^;]*;\s*(?:(?P=name)\s*\+\+|\+\+\s*(?P=name)|(?P=name)\s*\+=)",
        "{name} moves away from its bound",
    ),
    (
        rf";\s*{_NUMBER}\s*!=[^;]*;\s*(?P=name)\s*(?:\+=|-=|\*=|/=)",
        "{name} may step over the value that ends the loop: use <",
    ),
)


def loops(source: str) -> list[Loop]:
    """All loops of a source whose head is on one line."""
    return list(_loops(source))


def _loops(source: str) -> Iterator[Loop]:
    for number, line in enumerate(source.splitlines(), 1):
        code = _COMMENT.sub("", line)
        if _HEAD.search(code):
            yield Loop(number, line.strip(), _reason(code))


def _reason(code: str) -> str:
    for pattern, reason in _RULES:
        if found := re.search(pattern, code):
            return reason.format(name=found["name"])
    return ""


def endless(source: str) -> dict[str, object]:
    """Evidence of a kernel that does not return: the loop that cannot end and why, else the loops that there are."""
    found = loops(source)
    sure = [loop for loop in found if loop.reason]
    evidence: dict[str, object] = {"source": [(loop.line, loop.text) for loop in (sure or found)[:MOST_LINES]]}
    if sure:
        evidence["hint"] = f"Line {sure[0].line}: {sure[0].reason}."
    elif found:
        evidence["hint"] = "One of these loops does not end: compare how its counter begins, its bound and its step."
    return evidence
