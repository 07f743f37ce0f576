"""A handout as a list of units, and which numbers of its worked examples no recomputed text covers."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

LEFT_OUT = ("Tasks", "Run the check", "Questions to think about")
"""Sections without worked examples: tables that are generated, commands, and what the student works out."""

_WORKED = re.compile(r"[=≈] ?[−\d]|\d\.\d{3}|[Bb]y hand|in words")
"""What a unit has in which something is worked out: a result, a number of some digits, or the words for it."""
_COMPUTED = re.compile(r"\d,\d{3}|\d ?[·/+] ?\d")
"""Large numbers and arithmetic, which outside of the contract are worked out too."""
_IN_CONTRACT = re.compile(r"\d ?[·/+] ?\d.*= \d|\b[Aa]n example[:,]")
"""Where cases and limits (T = 1) are not worked out, arithmetic with a result is."""
_NO_NUMBER = re.compile(r"[Ss]tages? \d+(?:(?:, | and | to )\d+)*|Llama 3(?:\.2 1B)?|\d\d-[\w-]+\.md|\(figures/[^)]*\)")
_NUMBER = re.compile(r"0x[\dA-Fa-f]+|(?<![\w.])\d(?:[\d,.]*\d)?")
_NEW_UNIT = re.compile(r"\||- |\d+\. |#|!\[|<!--")


class Unit(NamedTuple):
    """A paragraph, list item, row of a table, heading or block of code, its white space squeezed."""

    section: str
    text: str

    @property
    def is_row(self) -> bool:
        return self.text.startswith("|")


def squeezed(text: str) -> str:
    return " ".join(text.split())


def units(page: str) -> list[Unit]:
    """The units of a page, which joined by spaces are the squeezed page."""
    return list(_units(page.splitlines()))


def _units(lines: Iterable[str]) -> Iterator[Unit]:
    section, unit, in_code = "", list[str](), False
    for line in [*lines, ""]:
        fence = line.startswith("```")
        if unit and not in_code and (not line or fence or _NEW_UNIT.match(line)):
            yield Unit(section, squeezed(" ".join(unit)))
            unit = []
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if line:
            unit.append(line)
        if fence:
            in_code = not in_code
    assert not unit, unit


def worked(parts: list[Unit]) -> Iterator[bool]:
    """Of each unit, whether it works something out: by itself, in one table with such a row, or announced by such."""
    announced = False
    for kind, group in groupby(parts, lambda unit: (unit.section, unit.is_row)):
        members = list(group)
        alone = [_works_out(unit) for unit in members]
        if kind[1] and kind[0] != "Usual mistakes":
            alone = [announced or any(alone)] * len(members)
        elif members[0].text.startswith("```"):
            alone[0] |= announced
        yield from alone
        announced = alone[-1] and members[-1].text.endswith(":")


def _works_out(unit: Unit) -> bool:
    if unit.section in LEFT_OUT or unit.text.startswith(("#", "<!--", "|---")) or re.match(r"```(?!json)\w", unit.text):
        return False
    if unit.section == "The contract":
        return bool(_IN_CONTRACT.search(unit.text))
    return bool(_WORKED.search(unit.text) or _COMPUTED.search(unit.text))


def uncovered(page: str, texts: Iterable[str]) -> list[str]:
    """`numbers in: unit` for each worked unit with numbers that are in none of the texts."""
    whole, parts = squeezed(page), units(page)
    covered = [match.span() for text in texts for match in re.finditer(re.escape(squeezed(text)), whole)]
    found, start = [], 0
    for unit, works_out in zip(parts, worked(parts), strict=True):
        bare = [
            number
            for number, at in (numbers(unit) if works_out else ())
            if not any(first <= start + at and start + at + len(number) <= last for first, last in covered)
        ]
        if bare:
            found.append(f"{' '.join(bare)} in: {unit.text}")
        start += len(unit.text) + 1
    return found


def numbers(unit: Unit) -> Iterator[tuple[str, int]]:
    """Each number of a unit with its place; of a usual mistake, only those of its last cell, the example."""
    text = _NO_NUMBER.sub(lambda match: "·" * len(match[0]), unit.text)
    first = text.rindex("|", 0, -1) if unit.section == "Usual mistakes" and unit.is_row else 0
    for match in _NUMBER.finditer(text, first):
        yield match[0], match.start()
