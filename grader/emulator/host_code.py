"""Finds what of a CUDA C source is for the host alone, which nvcc leaves out of the device's code too.

So a whole program can be pasted: the functions that allocate, copy, launch and print go, the kernels stay. What is
marked for the device stays and is looked at, whatever it contains.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grader.emulator import unsupported
from grader.emulator.tokens import Token, closing_bracket

_DEVICE = {"__global__", "__device__", "__constant__", "__shared__", "__managed__", "constexpr"}
_NO_VARIABLES = {"typedef", "using", "struct", "class", "union", "enum", "static_assert", "extern", "namespace"}
_HOST_LIBRARY = re.compile(
    "malloc|calloc|realloc|free|s?rand(?:48)?|exit|abort|f(?:open|close|printf|flush|read|write|scanf)|stderr|stdout|cout|"
    "cerr|endl|s?scanf|getenv|ato[fil]|strto\\w+|time|clock_gettime|gettimeofday|chrono|vector|string|ofstream|ifstream"
)


class _Declaration(NamedTuple):
    begin: int
    end: int
    """One past its last token."""
    name: str
    """Of the function; empty when it is none."""


def host_ranges(tokens: Sequence[Token], macros: dict[str, str]) -> list[tuple[int, int]]:
    """Ranges of tokens (begin, end) of functions and variables that only a host can use.

    `macros`: what is defined, and as what. A function is the host's when it is main or, not marked for the device,
    names something of the host's; then whatever names that function is, too.
    """
    words = [token.text for token in tokens]
    candidates = [part for part in _declarations(words, macros) if not _DEVICE & set(words[part.begin : part.end])]
    host = {"main"}
    known = 0
    while known < len(host):
        known = len(host)
        host |= {name for name, body in macros.items() if _is_host(re.findall(r"\w+|::|<<<|\W", body), host)}
        host |= {part.name for part in candidates if part.name and _is_host(words[part.begin : part.end], host)}
    return [
        (part.begin, part.end)
        for part in candidates
        if (part.name in host if part.name else _has_host_type(words[part.begin : part.end]))
    ]


def _is_host(words: Sequence[str], host: set[str]) -> bool:
    return any(
        word in host or _HOST_LIBRARY.fullmatch(word) or unsupported.name(word, following)
        for word, following in itertools.pairwise([*words, ""])
    )


def _has_host_type(words: Sequence[str]) -> bool:
    """Whether this declares a variable of a type that only CUDA's libraries for the host have."""
    return words[0] not in _NO_VARIABLES and any(unsupported.is_host(word) for word in words)


def _declarations(words: Sequence[str], macros: dict[str, str]) -> Iterator[_Declaration]:
    """Those outside of functions and classes."""
    begin, i, name, is_value = 0, 0, "", False
    while i < len(words):
        word, end = words[i], 0
        opening = i
        if word in ("(", "[", "{") and not _is_scope(words, begin, i):
            i = min(closing_bracket(words, i), len(words) - 1)
        if word == "(":
            name = name or ("" if is_value or opening == begin else words[opening - 1])
            is_call = opening == begin + 1 and words[begin] in macros  # of a macro, alone
            end = i + 1 if is_call and words[i + 1 : i + 2] != [";"] else 0
        elif word == "{":
            is_body = words[opening - 1] in (")", "const", "noexcept") and not is_value
            end = i + 1 if is_body or i == opening else 0
        elif word in (";", "}"):
            end = i + 1
        is_value |= word == "="
        if end:
            is_function = word == "{" and i > opening
            yield _Declaration(begin, end, name if is_function else "")
            begin, name, is_value = end, "", False
        i += 1


def _is_scope(words: Sequence[str], begin: int, brace: int) -> bool:
    """Whether a namespace, or declarations of C, begin here."""
    return words[brace] == "{" and ("namespace" in words[begin:brace] or words[begin:brace] == ["extern", '"C"'])
