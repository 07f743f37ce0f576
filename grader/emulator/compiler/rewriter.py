"""Makes C++ of CUDA C text: finds the kernels, rewrites what C++ has no words for, refuses what is not emulated.

Rewriting keeps every line where it was, so that the compiler's messages name the student's own lines.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from grader.emulator.compiler import unsupported
from grader.emulator.compiler.host_code import host_ranges
from grader.emulator.compiler.kernel_macros import expanded
from grader.emulator.compiler.tokens import LINE_DIRECTIVE, Token, closing_bracket, tokens

_WITH_ARGUMENTS = {"__launch_bounds__", "__attribute__", "__align__", "alignas", "decltype", "__maxnreg__", "declspec"}
_DEFINE = re.compile(r"\s*#\s*define\s+(\w+)(.*)", re.DOTALL)


class SourceError(Exception):
    """The text cannot be emulated; the message has the form of a compiler's, with file and line."""


class Rewritten(NamedTuple):
    """C++ text, and the kernels that it describes to the runtime, each with the names of its parameters."""

    text: str
    kernels: dict[str, list[str]]
    constants: tuple[str, ...]
    """Variables in global and constant memory that no kernel can change."""


def rewrite(source: str) -> Rewritten:
    """C++ for one CUDA C source. Raises SourceError."""
    return _Rewriter(expanded(source)).run()


def line_of(source: str, file: str, number: int) -> str:
    """The text of a line, by the numbers that #line directives give; empty when there is none."""
    return next((text.strip() for _, place, text in numbered(source) if place == (file, number)), "")


def numbered(source: str) -> Iterator[tuple[int, tuple[str, int], str]]:
    """Of each line but #line directives its index in the text, file and number as those give them, and its text."""
    name, current = "kernel.cu", 0
    for i, text in enumerate(source.split("\n")):
        if directive := LINE_DIRECTIVE.match(text):
            name, current = directive[2] or name, int(directive[1]) - 1
            continue
        current += 1
        yield i, (name, current), text


class _Rewriter:
    def __init__(self, source: str) -> None:
        self.source = source
        everything = list(tokens(source))
        self.directives = [token for token in everything if token.kind == "directive"]
        self.tokens = [token for token in everything if token.kind != "directive"]
        self.edits: list[tuple[int, int, str]] = []
        self._leave_out_host_code()
        self.words = [token.text for token in self.tokens]
        self.kernels: dict[str, list[str]] = {}
        self.constants: list[str] = []
        self.file_shared: set[str] = set()
        self.c_linkage: set[str] = set()
        self.scopes: list[str] = []  # of each open brace: "C" linkage, "namespace" or "block"

    def run(self) -> Rewritten:
        self._refuse_headers()
        begin = 0  # of the running declaration or statement
        for i, token in enumerate(self.tokens):
            self._refuse(i)
            if token.text == "{":
                self.scopes.append(self._scope(begin, i))
            elif token.text == "}" and self.scopes:
                self.scopes.pop()
            elif token.text == "__global__":
                self._kernel(begin)
            elif token.text == "__shared__":
                self._shared(begin, i)
            elif token.text in ("__device__", "__constant__"):
                self._variable(begin, i)
            elif token.text in self.file_shared and self._text(i - 1) in "(,=" and self._text(i + 1) in "),;":
                self.edits.append((token.start, token.start, "+"))  # alone, as in a cast: a pointer, not an object
            if token.text in "{};" and token.kind == "mark":
                begin = i + 1
        return Rewritten(self._edited(), self.kernels, tuple(self.constants))

    def _leave_out_host_code(self) -> None:
        """Blank what only a host can use, but no #if in it."""
        macros = {match[1]: match[2] for token in self.directives if (match := _DEFINE.match(token.text))}
        for begin, end in reversed(host_ranges(self.tokens, macros)):
            start, stop = self.tokens[begin].start, self.tokens[end - 1].end
            inside = [t for t in self.directives if start < t.start < stop and not re.match(r"\s*#\s*pragma\b", t.text)]
            starts = [start, *(token.end for token in inside)]
            stops = [*(token.start for token in inside), stop]
            for a, b in zip(starts, stops, strict=True):
                self.edits.append((a, b, "\n" * self.source.count("\n", a, b)))
            del self.tokens[begin:end]

    # What is refused

    def _refuse_headers(self) -> None:
        for token in self.directives:
            header = re.match(r'\s*#\s*include\s*[<"]([^>"]*)', token.text)
            if header and (reason := unsupported.header(header[1])):
                raise self._error(token, reason)

    def _refuse(self, i: int) -> None:
        if reason := unsupported.name(self.tokens[i].text, self._text(i + 1)):
            raise self._error(self.tokens[i], reason)
        if self._text(i) in ("this_grid", "grid_group"):
            self._refuse_grid_sync(i)

    def _refuse_grid_sync(self, i: int) -> None:
        """What is declared as the whole grid at a token, or with its value, must not be waited for in this function."""
        type_begin = i - 2 if self._text(i - 1) == "::" else i
        name = self._text(type_begin - 2) if self._text(type_begin - 1) == "=" else self._text(i + 1).strip("&")
        depth = 0
        for j in range(i, len(self.tokens)):
            depth += (self._text(j) == "{") - (self._text(j) == "}")
            if depth < 0:
                return
            receiver = self._text(j - 2) if self._text(j - 1) == "." else ""
            is_value = receiver == ")" and self._text(j - 4) == "this_grid"
            if self._text(j) == "sync" and (is_value or name in (receiver, self._text(j + 2))):
                raise self._error(self.tokens[j], f"this_grid: {unsupported.WHOLE_GRID}")

    # What is rewritten

    def _scope(self, begin: int, brace: int) -> str:
        words = [token.text for token in self.tokens[begin:brace]]
        if words == ["extern", '"C"']:
            return "C"
        return "namespace" if "namespace" in words else "block"

    def _kernel(self, begin: int) -> None:
        """Describe a kernel to the runtime behind its body, when it has one and can be found by its plain name."""
        i, bounds = begin, "1024"
        while not (self._kind(i) == "name" and self._text(i + 1) == "(") or self._text(i) in _WITH_ARGUMENTS:
            if self._text(i) in ("", "{", "}", ";"):
                return
            if self._text(i) in _WITH_ARGUMENTS and self._text(i + 1) == "(":
                end = closing_bracket(self.words, i + 1)
                bounds = self._first_argument(i + 1, end) if self._text(i) == "__launch_bounds__" else bounds
                i = end
            i += 1
        name = self._text(i)
        words = {token.text for token in self.tokens[begin:i]}
        if '"C"' in words or "C" in self.scopes:
            self.c_linkage.add(name)
        body = closing_bracket(self.words, i + 1) + 1
        end_of_body = closing_bracket(self.words, body) if self._text(body) == "{" else len(self.tokens)
        if name in self.c_linkage and end_of_body < len(self.tokens):
            end = self.tokens[end_of_body].end
            self.edits.append((end, end, f" PAGEDLAB_KERNEL({name}, ({bounds}))"))
            self.kernels.setdefault(name, self._parameters(i + 1, body - 1))

    def _parameters(self, opening: int, closing: int) -> list[str]:
        """The names of the parameters between two brackets; "" for one without."""
        names, kept, i = [], "", opening + 1
        if i == closing or (i + 1 == closing and self._text(i) == "void"):
            return []
        while i <= closing:
            if self._text(i) == "," or i == closing:
                names.append(kept)
                kept = ""
            elif self._kind(i) == "name" and self._text(i) not in _WITH_ARGUMENTS:
                kept = self._text(i)
            elif self._text(i) in "([{":
                i = closing_bracket(self.words, i)
            i += 1
        return names

    def _shared(self, begin: int, at: int) -> None:
        end = at
        while self._text(end) not in ("", ";", "="):
            end += 1
        if self._text(end) == "=":
            raise self._error(
                self.tokens[end], "a __shared__ variable cannot have an initialiser: write it in the kernel"
            )
        words = [token.text for token in self.tokens[begin:at]]
        if "extern" in words:
            self._dynamic_shared(begin, end)
            return
        if "static" in words:
            self._edit(at, at, "__attribute__((used)) thread_local")
        for i in range(at, end):
            if self._text(i) == "alignas":  # C++ wants it in front
                self._edit(i, i, "__align__")

    def _dynamic_shared(self, begin: int, end: int) -> None:
        """`extern __shared__ T name[][n];` becomes a pointer to the launch's shared memory."""
        i, kept = begin, []
        while i < end and self._text(i) != "[":
            if self._text(i) in _WITH_ARGUMENTS:
                i = closing_bracket(self.words, i + 1)
            elif self._text(i) not in ("extern", "__shared__"):
                kept.append(self._text(i))
            i += 1
        if i >= end or not kept:
            raise self._error(self.tokens[begin], "extern __shared__ declares an array of unknown size: T name[]")
        type_name, name = " ".join(kept[:-1]), kept[-1]
        rows = "".join(token.text for token in self.tokens[closing_bracket(self.words, i) + 1 : end])
        pointer = f"{type_name} (*){rows}" if rows else f"{type_name}*"
        if "block" in self.scopes:
            declared = f"{type_name} (*{name}){rows}" if rows else f"{type_name}* {name}"
            text = f"{declared} = reinterpret_cast<{pointer}>(pagedlab_dynamic_shared)"
        else:
            text = f"static const pagedlab::DynamicShared<std::remove_pointer_t<{pointer}>> {name}{{}}"
            self.file_shared.add(name)
        self._edit(begin, end - 1, text)

    def _variable(self, begin: int, at: int) -> None:
        """A variable goes where the device finds it; a function stays as it is, and so does what cannot change."""
        i = at + 1
        while self._text(i) not in ("", "(", ")", "[", "=", ";", "{", "operator"):
            i = closing_bracket(self.words, i + 1) + 1 if self._text(i) in _WITH_ARGUMENTS else i + 1
        if i <= at + 2 or self._text(i) not in ("[", "=", ";", "{"):
            return
        words = [token.text for token in self.tokens[begin:i]]
        behind_pointer = words[len(words) - words[::-1].index("*") :] if "*" in words else words
        if "constexpr" in words or "const" in behind_pointer:
            is_found = "block" not in self.scopes and "constexpr" not in words
            self._edit(at, at, "__attribute__((used))" if is_found else "")
            self.constants += [words[-1]] * is_found
        elif "__constant__" not in words:
            self._edit(at, at, "PAGEDLAB_GLOBAL")

    # Helpers

    def _text(self, i: int) -> str:
        return self.words[i] if 0 <= i < len(self.words) else ""

    def _kind(self, i: int) -> str:
        return self.tokens[i].kind if 0 <= i < len(self.tokens) else ""

    def _first_argument(self, opening: int, closing: int) -> str:
        end = opening + 1
        while end < closing and self._text(end) != ",":
            end = closing_bracket(self.words, end) + 1 if self._text(end) in "([{" else end + 1
        return self.source[self.tokens[opening].end : self.tokens[end].start] if end < len(self.tokens) else "1024"

    def _edit(self, first: int, last: int, text: str) -> None:
        start, end = self.tokens[first].start, self.tokens[last].end
        self.edits.append((start, end, text + "\n" * self.source.count("\n", start, end)))

    def _edited(self) -> str:
        pieces, position = [], 0
        for start, end, text in sorted(self.edits):
            if start >= position:  # else in the middle of something that the compiler will refuse
                pieces += [self.source[position:start], text]
                position = end
        return "".join([*pieces, self.source[position:]])

    def _error(self, token: Token, message: str) -> SourceError:
        file, line, begin = "kernel.cu", 1, 0
        for directive in self.directives:
            found = LINE_DIRECTIVE.match(directive.text)
            if found and directive.start < token.start:
                file, line, begin = found[2] or file, int(found[1]) - 1, directive.end
        return SourceError(f"{file}:{line + self.source.count(chr(10), begin, token.start)}: error: {message}\n")
