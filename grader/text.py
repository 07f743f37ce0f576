"""Text for readers: makes what came from a submission safe to show, and joins names."""

import re
import unicodedata
from collections.abc import Iterable

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: object, limit: int = 4000) -> str:
    """The text without escape sequences, control, format-changing and surrogate characters, at most `limit` long.

    Line feeds stay, carriage returns become line feeds, tabs become spaces; other such characters are left out or
    become U+FFFD. Longer text keeps its beginning and its end, with a note of how much was left out between them.
    """
    value = str(text)
    if len(value) > 64 * limit:  # never spend time on a flood
        value = value[: 32 * limit] + value[-32 * limit :]
    value = _ESCAPE_SEQUENCE.sub("", value.replace("\r\n", "\n").replace("\r", "\n")).expandtabs(4)
    value = "".join(_visible(character) for character in value)
    if len(value) <= limit:
        return value
    head, tail = limit * 2 // 3, limit // 3
    return f"{value[:head]}\n… {len(value) - head - tail} characters left out …\n{value[-tail:] if tail else ''}"


def clean_line(text: object, limit: int = 400) -> str:
    """As `clean`, on one line: runs of white space become one space, and what is too long ends in `…`."""
    line = " ".join(clean(text, 8 * limit).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def join_names(names: Iterable[str]) -> str:
    """`a, b and c`."""
    *front, last = list(names)
    return f"{', '.join(front)} and {last}" if front else last


def _visible(character: str) -> str:
    if character == "\n" or (character.isprintable() and character not in _BIDIRECTIONAL):
        return character
    return "" if unicodedata.category(character) in ("Cc", "Cf") else "\ufffd"
