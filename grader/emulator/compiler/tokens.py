"""Tokens of CUDA C text, with their places in it, and the brackets among them."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<blank>\s+ | //(?:\\\n|[^\n])* | /\*.*?(?:\*/|\Z))
      | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
      | (?P<string>(?:u8|[uUL])?R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.]|'\w)*)
      | (?P<mark_>\.\.\.|<<<|::|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
LINE_DIRECTIVE = re.compile(r'\s*#\s*line\s+(\d+)(?:\s+"([^"]*)")?')
"""#line: the number of the next line, and the file where one is named."""


class Token(NamedTuple):
    """`kind` is directive, string, name, number or mark."""

    kind: str
    text: str
    start: int
    end: int


def tokens(source: str) -> Iterator[Token]:
    """All of a source but blanks and comments."""
    for match in _TOKEN.finditer(source):
        kind = str(match.lastgroup)
        if kind != "blank":
            yield Token("mark" if kind == "mark_" else kind, match[0], match.start(), match.end())


def closing_bracket(words: Sequence[str], opening: int) -> int:
    """The position of the bracket that closes the one at `opening`; one past the last word when none does."""
    depth = 0
    for i in range(opening, len(words)):
        depth += (words[i] in ("(", "[", "{")) - (words[i] in (")", "]", "}"))
        if depth == 0:
            return i
    return len(words)
