"""Finds what of a CUDA C source is for the host alone, which nvcc leaves out of the device's code too.

So a whole program can be pasted: the functions that allocate, copy, launch and print go, the kernels stay. What is
marked for the device stays and is looked at, whatever it contains.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grader.emulator.compiler import unsupported
from grader.emulator.compiler.tokens import Token, closing_bracket

_DEVICE = {"__global__", "__device__", "__constant__", "__shared__", "__managed__", "constexpr"}
_NO_VARIABLES = {
    "typedef",
    "using",
    "struct",
    "class",
    "union",
    "enum",
    "static_assert",
    "extern",
    "namespace",
    "template",
}
_HOST_CALLS = re.compile(
    "malloc|calloc|realloc|free|s?rand(?:48)?|exit|abort|f(?:open|close|printf|flush|read|write|scanf)|s?scanf|getenv|"
    "ato[fil]|strto\\w+|time|clock_gettime|gettimeofday|vector"
)
_HOST_STREAMS = {"stderr", "stdout", "cout", "cerr", "endl", "chrono", "ofstream", "ifstream"}


class _Declaration(NamedTuple):
    begin: int
    end: int
    """One past its last token."""
    name: str
    """Of the function or class; empty for anything else."""


def host_ranges(tokens: Sequence["Token"], macros: dict[str, str]) -> list[tuple[int, int]]:
    """Ranges of tokens (begin, end) of functions, classes and variables that only a host can use.

    `macros`: what is defined, and as what. A function is the host's when it is main or, not marked for the device,
    names something of the host's; then whatever names that function is, too. So is a variable that nothing else names.
    """
    words = [token.text for token in tokens]
    texts = {part: words[part.begin : part.end] for part in _declarations(words, macros)}
    candidates = {part: text for part, text in texts.items() if not _DEVICE & set(text)}
    bodies = {name: re.findall(r"\w+|::|<<<|\S", body) for name, body in macros.items()}
    host, known = {"main"}, 0
    while known < len(host):
        known = len(host)
        host |= {name for name, body in bodies.items() if _is_host(body, host)}
        host |= {part.name for part, text in candidates.items() if part.name and _is_host(text, host)}
    left_out = {part for part, text in candidates.items() if part.name in host or _has_host_type(text)}
    mentions = Counter(itertools.chain(*bodies.values(), *(texts[part] for part in texts.keys() - left_out)))
    left_out |= {part for part in candidates.keys() - left_out if _is_unused(texts[part], mentions, macros)}
    return sorted((part.begin, part.end) for part in left_out)


def _is_host(words: Sequence[str], host: set[str]) -> bool:
    is_class = words[:1] in (["struct"], ["class"])
    return any(
        word in host
        or (unsupported.is_host(word) if is_class else unsupported.name(word, following))
        or (not is_class and (word in _HOST_STREAMS or (following in ("(", "<") and _HOST_CALLS.fullmatch(word))))
        for word, following in itertools.pairwise([*words, ""])
    )


def _has_host_type(words: Sequence[str]) -> bool:
    """Whether this declares a variable of a type that only CUDA's libraries for the host have."""
    return words[0] not in _NO_VARIABLES and words[-1] == ";" and any(unsupported.is_host(word) for word in words)


def _is_unused(words: Sequence[str], mentions: Counter[str], macros: dict[str, str]) -> bool:
    """Whether this declares variables, none of which is named anywhere else."""
    declared = [name for name, after in itertools.pairwise(words) if after in (",", ";", "=", "[", "(", "{")]
    names = [name for name in declared if name.isidentifier()]
    is_plain = words[-1] == ";" and not _NO_VARIABLES & set(words) and not any(map(unsupported.name, words, words[1:]))
    return (
        bool(names) and is_plain and all(mentions[name] == words.count(name) and name not in macros for name in names)
    )


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
            is_body = name and not is_value and words[i + 1 : i + 2] not in (["{"], [","])  # else of a member's value
            end = i + 1 if is_body or i == opening else 0
        elif word in (";", "}"):
            end = i + 1
        is_value |= word == "="
        if end:
            is_function = word == "{" and i > opening
            is_class = words[begin] in ("struct", "class") and word == ";"
            yield _Declaration(begin, end, name if is_function else words[begin + 1] if is_class else "")
            begin, name, is_value = end, "", False
        i += 1


def _is_scope(words: Sequence[str], begin: int, brace: int) -> bool:
    """Whether a namespace, or declarations of C, begin here."""
    return words[brace] == "{" and ("namespace" in words[begin:brace] or words[begin:brace] == ["extern", '"C"'])
