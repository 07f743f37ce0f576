"""Edits of CUDA text, token by token: comments, texts and directives stay, and so do parameter lists.

Some edits do not compile. They need not be told from the others here: such a mutant is refused when it is graded.
"""

from collections.abc import Iterator
from itertools import pairwise

from grader.emulator.compiler.tokens import Token, closing_bracket, tokens
from tests.campaigns.edits import Edit

LONG_MARKS = {"<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "++", "--", "<<", ">>", "->"}
OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "<<": ">>",
    "+=": "-=",
    "*=": "+=",
    "/=": "-=",
    "&": "|",
}
STRICTNESS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
TYPES = {"void", "bool", "char", "int", "unsigned", "long", "float", "double", "uint4", "float4", "auto"}
TYPES |= {"const", "__restrict__", "size_t", "__nv_bfloat16"}
DECLARING = TYPES | {"constexpr", "static", "extern", "__shared__", "Running", "struct", "using", "return"}
AXES = {"x": "y", "y": "x", "z": "w", "w": "z"}
PAIRS = (
    ("row", "column"),
    ("m", "n"),
    ("M", "N"),
    ("i", "j"),
    ("i", "h"),
    ("x", "y"),
    ("lane", "warp"),
    ("num_heads", "num_kv_heads"),
    ("head", "kv_head"),
    ("head", "token"),
    ("head", "sequence"),
    ("query", "key"),
    ("chunk", "key_group"),
    ("q_stride", "kv_stride"),
    ("first", "second"),
    ("x_row", "w_row"),
    ("start", "position"),
    ("num_queries", "num_keys"),
    ("keys", "values"),
    ("block", "position"),
    ("slot", "row"),
    ("gate", "up"),
)
OPPOSITES = {"min": "max", "max": "min", "fminf": "fmaxf", "fmaxf": "fminf"}
TRUNCATING = {"__float2bfloat16": "__float2bfloat16_rz"}
CONVERSIONS = {"__bfloat162float", "__uint_as_float", "static_cast"}
BARRIERS = {"__syncthreads", "__syncwarp"}


class _Text:
    """The tokens of a source, and what the rules ask about them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = [token for token in _joined(source) if token.kind != "directive"]
        self.words = [token.text for token in self.tokens]
        self.depths = list(_depths(self.words))
        self.scopes = list(_scopes(self.words, self.depths))
        self.templates = _templates(self.words)
        self.floats = {b for a, b in pairwise(self._declared()) if a == "float"}

    def _declared(self) -> Iterator[str]:
        """The words without what stands between a type and a name, and with the type before each further name."""
        kind = ""
        for word in self.words:
            if word in TYPES - {"const", "__restrict__"}:
                kind = word
            elif word in (";", "{", ")"):
                kind = ""
            if word == ",":
                yield kind
            elif word not in ("*", "&", "(", "const", "__restrict__"):
                yield word

    def is_code(self, i: int) -> bool:
        """Whether a token is part of a function's body."""
        return self.depths[i] > 0

    def is_binary(self, i: int) -> bool:
        """Whether an operator stands between two values, as far as its left neighbour tells."""
        before = self.tokens[i - 1]
        is_value = before.kind in ("name", "number") or before.text in (")", "]")
        return is_value and before.text not in DECLARING and i not in self.templates

    def edit(self, kind: str, first: int, last: int, after: str) -> Edit:
        """The tokens from `first` to `last` become this text."""
        return Edit(kind, self.tokens[first].start, self.tokens[last].end, after)


def cuda_edits(source: str) -> list[Edit]:
    """All edits of a kernel's text that this file knows."""
    text = _Text(source)
    inside = [i for i in range(len(text.words)) if text.is_code(i)]
    edits = [edit for i in inside for rule in RULES for edit in rule(text, i)]
    constants = [i for i in range(len(text.words)) if not text.is_code(i)]
    return edits + [edit for i in constants for edit in _constants(text, i)]


def _joined(source: str) -> Iterator[Token]:
    """The tokens, with those operators as one that have two characters."""
    pending: Token | None = None
    for token in tokens(source):
        if pending and pending.end == token.start and pending.text + token.text in LONG_MARKS:
            yield Token("mark", pending.text + token.text, pending.start, token.end)
            pending = None
            continue
        if pending:
            yield pending
        pending = token
    if pending:
        yield pending


def _depths(words: list[str]) -> Iterator[int]:
    """How many braces are open at each word."""
    depth = 0
    for word in words:
        depth -= word == "}"
        yield depth
        depth += word == "{"


def _scopes(words: list[str], depths: list[int]) -> Iterator[set[str]]:
    """For each word the words of the function around it, with its parameters."""
    begin = 0
    for i, word in enumerate(words):
        if depths[i] == 0 and (word in (";", "}") or i == len(words) - 1):
            names = set(words[begin : i + 1])
            yield from [names] * (i + 1 - begin)
            begin = i + 1


def _templates(words: list[str]) -> set[int]:
    """The positions of the type in static_cast<…>, with its brackets."""
    found: set[int] = set()
    for i, word in enumerate(words):
        if word in ("static_cast", "reinterpret_cast"):
            found.update(range(i + 1, words.index(">", i) + 1))
    return found


def _operators(text: _Text, i: int) -> Iterator[Edit]:
    word = text.words[i]
    if word in OPERATORS and text.is_binary(i):
        yield text.edit("operator", i, i, OPERATORS[word])


def _bounds(text: _Text, i: int) -> Iterator[Edit]:
    word = text.words[i]
    if word in STRICTNESS and text.is_binary(i):
        yield text.edit("bound", i, i, STRICTNESS[word])


def _constants(text: _Text, i: int) -> Iterator[Edit]:
    token = text.tokens[i]
    if token.text == "INFINITY":
        yield text.edit("constant", i, i, "0.0f")
    if token.kind != "number":
        return
    if token.text.startswith("0x"):
        digits = token.text.rstrip("u")
        yield text.edit("constant", i, i, f"{int(digits, 16) >> 1:#x}{token.text[len(digits) :]}")
    elif token.text.endswith("f"):
        yield text.edit("constant", i, i, {"0.0f": "1.0f", "1.0f": "0.5f"}.get(token.text, "0.0f"))
    else:
        value = int(token.text)
        for other in {value + 1, abs(value - 1), value // 2 or 2}:
            yield text.edit("constant", i, i, str(other))


def _barriers(text: _Text, i: int) -> Iterator[Edit]:
    if text.words[i] in BARRIERS:
        yield text.edit("barrier", i, closing_bracket(text.words, i + 1) + 1, "")


def _indices(text: _Text, i: int) -> Iterator[Edit]:
    word, before = text.words[i], text.words[i - 1]
    if before == "." and word in AXES:
        yield text.edit("index", i, i, AXES[word])
    if before in (".", *DECLARING):
        return
    for pair in PAIRS:
        other = pair[1 - pair.index(word)] if word in pair else ""
        if other in text.scopes[i]:
            yield text.edit("index", i, i, other)


def _types(text: _Text, i: int) -> Iterator[Edit]:
    words = text.words
    if words[i : i + 2] == ["long", "long"]:
        yield text.edit("type", i, i + 1, "int")
    begin = i
    while begin > 0 and words[begin - 1] not in (";", "{", "}"):
        begin -= 1
    if words[i] == "+=" and words[begin] in text.floats and _end(text, begin) > i:
        end = _end(text, begin)
        target = text.source[text.tokens[begin].start : text.tokens[i - 1].end]
        added = text.source[text.tokens[i + 1].start : text.tokens[end - 1].end]
        rounded = f"{target} = __bfloat162float(__float2bfloat16({target} + ({added})));"
        yield text.edit("type", begin, end, rounded)


def _end(text: _Text, begin: int) -> int:
    """The semicolon of the statement that begins there."""
    return text.words.index(";", begin)


def _statements(text: _Text, i: int) -> Iterator[Edit]:
    word, before = text.words[i], text.words[i - 1]
    begins = before in (";", "{", "}") and text.tokens[i].kind == "name"
    if not begins or word in DECLARING | BARRIERS | {"for", "if", "else", "while"} or _is_in_brackets(text, i):
        return
    end = _end(text, i)
    if "{" not in text.words[i:end]:
        yield text.edit("statement", i, end, "")


def _is_in_brackets(text: _Text, i: int) -> bool:
    """Whether a token stands in the head of a `for`."""
    begin = i
    while begin > 0 and text.words[begin - 1] not in ("{", "}"):
        begin -= 1
    part = text.words[begin:i]
    return part.count("(") != part.count(")")


def _roundings(text: _Text, i: int) -> Iterator[Edit]:
    if text.words[i] in TRUNCATING:
        yield text.edit("rounding", i, i, TRUNCATING[text.words[i]])


def _extrema(text: _Text, i: int) -> Iterator[Edit]:
    if text.words[i] in OPPOSITES and text.words[i + 1] == "(":
        yield text.edit("extremum", i, i, OPPOSITES[text.words[i]])


def _casts(text: _Text, i: int) -> Iterator[Edit]:
    if text.words[i] in CONVERSIONS:
        opening = text.words.index("(", i)
        yield text.edit("cast", i, opening, "(")


RULES = (
    _operators,
    _bounds,
    _constants,
    _barriers,
    _indices,
    _types,
    _statements,
    _roundings,
    _extrema,
    _casts,
)
