"""Refuses kernels that could switch the hooks off, call what no GPU has, or find out whether they are watched.

Here, by the text that the compiler makes of it for both builds before it compiles; object_lint.py looks at the result.

What no look can find: a kernel with undefined behaviour, or whose result depends on the order of its blocks, may do
different things in the two builds. The checker reports the first, the orders of a checked launch the second.
"""

import contextlib
import functools
import itertools
import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from grader.emulator.compiler import unsupported
from grader.emulator.compiler.headers import HEADERS, refusal
from grader.emulator.compiler.limits import limited
from grader.emulator.compiler.rewriter import SourceError

_RAW_STRING = r'(?:u8|[uUL])?R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"'
_TOKEN = re.compile(
    r"""(?P<directive>^[ \t]*\#[^\n]*)
      | (?P<blank>\n+|[^\S\n]+)
      | (?P<string>(?:u8|[uUL])?R"(?P<end>[^(\s]*)\(.*?\)(?P=end)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
      | (?P<name>[^\W\d][\w$]*)
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.]|'\w)*)
      | (?P<mark>::|<:(?!:[^:>])|:>|<%|%>|%:|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_MARKER = re.compile(r'^# (\d+) "((?:\\.|[^"\\\n])*)"((?: \d)*)$', re.MULTILINE)

_ATTRIBUTES = re.compile(
    "aligned?|always_inline|assume|assume_aligned|carries_dependency|cold|const(?:ant)?|deprecated|device(?:_builtin)?|"
    "fallthrough|flatten|format|global|gnu_inline|host|hot|launch_bounds|likely|malloc|managed|may_alias|maybe_unused|"
    "no_unique_address|nodiscard|noinline|nonnull|noreturn|nothrow|nv_pure|packed|pure|returns_nonnull|shared|unlikely|"
    "unused|used|warn_unused_result"
)
_PRAGMAS = re.compile(
    r"#\s*pragma\s+(?:once|(?:no)?unroll|GCC\s+(?:unroll|ivdep|diagnostic)|clang\s+(?:loop|diagnostic)|nv_\w+|"
    r"hd_warning_disable|omp|diag_\w+|(?:end)?region|message|pack|STDC)\b"
)
_BUILTINS = re.compile(
    r"__builtin_(?:expect\w*|assume\w*|unreachable|prefetch|popcount\w*|(?:cl|ct)z\w*|ffs\w*|parity\w*|bswap\w+|"
    r"is_constant_evaluated|bit_cast|offsetof|addressof|huge_val\w*|inf\w*|nanf?|is(?:nan|inf|finite|normal|less|"
    r"greater|lessequal|greaterequal|unordered)\w*|signbit\w*|fpclassify|(?:add|sub|mul)\w*_overflow|LINE|FILE|"
    r"FUNCTION|(?:fabs|sqrt|fma|fmin|fmax|floor|ceil|trunc|rint|round|exp|exp2|log|log2|pow|copysign|sin|cos|tan|tanh|"
    r"erf)[fl]?)"
)
_HOST_HEADERS = re.compile(r"(?:^|/)(?:\w*intrin\.h|cpuid\.h|arm_\w+\.h|atomic|atomic_base\.h|stdatomic\.h)$")
# What other headers of the C++ library include of these.
_HOST_NAMES = re.compile(r"_mm\d*_\w+|__m(?:64|128|256|512)\w*|atomic_(?:ref|flag|thread_fence|signal_fence)")
_RESERVED = re.compile(
    r"pagedlab|PAGEDLAB|__(?:tsan|asan|ubsan|msan|lsan|hwasan|sanitizer|wrap|real|start|stop)_|__dso_handle|_DYNAMIC$|"
    r"__tls_get_addr|__gmon_start__|_ITM_|_GLOBAL_|__ehdr_start|__executable_start|__(?:pre)?init_array|__fini_array|"
    r"__cxa_|__cxxabiv1|__gnu_cxx|__cyg_profile|__exchange_and_add|__atomic|__sync_|__c11_atomic|__opencl_atomic"
)
# What our own macros make of a student's text: none of it does more than the word that the student wrote.
_EXPANSIONS = re.compile(
    r"pagedlab_printf|pagedlab_assert_failed|pagedlab_dynamic_shared|pagedlab :: DynamicShared <|"
    r"pagedlab :: Kernel pagedlab_kernel_\w+ =|pagedlab :: Entry <|pagedlab_kernel_\w+ = pagedlab"
)

_SAME = (
    "here the text is another one when memory accesses are checked: a kernel must be the same program whether it is "
    "checked or not, so do not ask how it is compiled"
)
ONLY_DEVICE = "a kernel can call CUDA's device functions and its own only"

_COMMENT = re.compile(
    _RAW_STRING + r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL
)
_NOT_COMPILED = re.compile(r"^#(?:define|undef|include|include_next|import)\b.*$", re.MULTILINE)


class PlacedToken(NamedTuple):
    """A piece of preprocessed text, and where the student wrote it; `kind` is a group of _TOKEN."""

    text: str
    kind: str
    file: str
    line: int


class Foreign(NamedTuple):
    """Lines that a header of the system or of the kit's gave where the student's text included it."""

    include: PlacedToken
    lines: list[str]


class Preprocessed(NamedTuple):
    """What a compiler command made of a source."""

    own: list[PlacedToken]
    foreign: list[Foreign]
    text: str
    """All of it, to be compiled."""


def check_text(commands: Sequence[Sequence[str]], text: str) -> list[tuple[str, str]]:
    """Look at what two compiler commands, plain and instrumented, make of a source. Raises SourceError.

    Returns of each its text, preprocessed, and what the compiler said. What was looked at is what must be compiled:
    files, and what __has_include says of them, may change from one moment to the next.
    """
    _check_directives(text, "kernel.cu")
    with ThreadPoolExecutor(2) as pool:
        (output, log, status), (other, other_log, other_status) = pool.map(
            lambda command: _preprocessed(command, text), commands
        )
    program = _scan(output)
    if status:
        timed = re.search(r'^(.+:\d+):\d+: error: macro "(\w+)" might prevent', log, re.MULTILINE)
        raise SourceError(f"{timed[1]}: error: {timed[2]} differs from one compilation to the next\n" if timed else log)
    if other_status:
        where = re.search(r"^(.+:\d+):\d+: (?:fatal )?error:", other_log, re.MULTILINE)
        raise SourceError(f"{where[1] if where else 'kernel.cu'}: error: {_SAME}\n")
    other_program = _scan(other)
    _compare(program.own, other_program.own)
    for i in range(len(program.own)):
        _check_token(program.own, i)
    _compare_foreign(commands[0], program.foreign)
    return [(program.text, log), (other_program.text, other_log)]


# Preprocessing


def _preprocessed(command: Sequence[str], text: str) -> tuple[str, str, int]:
    """What a compiler command makes of a text without compiling it, with the directives in it; messages; exit code."""
    result = subprocess.run(
        limited([*command, "-E", "-dDI", "-Werror=date-time", "-x", "c++", "-"]),
        input=text.encode(),
        capture_output=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    return result.stdout.decode("utf-8", "replace"), result.stderr.decode("utf-8", "replace"), result.returncode


def _scan(output: str) -> Preprocessed:
    """The student's tokens, and what foreign headers gave, by the compiler's marks of where a file begins and ends."""
    own: list[PlacedToken] = []
    foreign: list[Foreign] = []
    kept: list[str] = []
    file, line, position = "kernel.cu", 1, 0
    while position < len(output):
        match = _TOKEN.match(output, position)
        assert match
        position = match.end()
        marker = _MARKER.fullmatch(match[0]) if match.lastgroup == "directive" else None
        if marker is None:
            if match.lastgroup != "blank" and not file.startswith("<"):  # in "<built-in>" the compiler speaks
                own.append(PlacedToken(match[0].strip(), str(match.lastgroup), file, line))
            line += match[0].count("\n")
            kept.append("" if _NOT_COMPILED.match(match[0]) else match[0])
            continue
        flags = marker[3].split()
        include = own[-1] if own else PlacedToken("", "directive", file, line)
        if "1" in flags and _is_foreign(marker[2], flags):
            position, marker = _end_of_file(output, match.start())
            given = output[match.start() : position]
            kept.append(_NOT_COMPILED.sub("", given))
            foreign.append(_foreign_text(given, include, is_own=bool(own)))
            line = int(marker[1]) - 1
            file = marker[2]
            continue
        elif "1" in flags:
            raise refusal(f"{include.file}:{include.line}", f"{Path(marker[2]).name} is in none of them")
        kept.append(match[0])
        file, line = marker[2], int(marker[1]) - 1
    return Preprocessed(own, foreign, "".join(kept))


def _is_foreign(name: str, flags: Sequence[str]) -> bool:
    """Whether a file that the compiler enters is the system's or the kit's."""
    return "3" in flags or name.startswith("<") or Path(name).resolve().is_relative_to(HEADERS)


def _end_of_file(output: str, begin: int) -> tuple[int, "re.Match[str]"]:
    """The mark at which the file ends that begins with a mark; the end of all when an error ended the output."""
    depth = 0
    for marker in _MARKER.finditer(output, begin):
        depth += ("1" in marker[3].split()) - ("2" in marker[3].split())
        if depth == 0:
            return marker.end(), marker
    return len(output), marker


def _foreign_text(output: str, include: PlacedToken, *, is_own: bool) -> Foreign:
    """What a foreign header gave; `is_own`: the student includes it, not the kit."""
    marker = _MARKER.search(output)
    if is_own and marker and _HOST_HEADERS.search(marker[2]):
        name = marker[2].rpartition("/")[2]
        raise _error(include, f"{name} is for programs of the host: {ONLY_DEVICE}")
    lines = [line for line in output.splitlines() if line.strip()]
    return Foreign(include, [line for line in lines if line[0] != "#" or line.startswith("#pragma")])


def _error(token: PlacedToken, message: str) -> SourceError:
    return SourceError(f"{token.file}:{token.line}: error: {message}\n")


# The program must be the same


def _compare(plain: Sequence[PlacedToken], instrumented: Sequence[PlacedToken]) -> None:
    first, second = _normal(plain), _normal(instrumented)
    for a, b in itertools.zip_longest(first, second):
        if a is None or b is None or a.text != b.text:
            is_first = a is not None and (b is None or (a.file == b.file and a.line < b.line))
            raise _error(a if is_first else b, _SAME)


def _normal(tokens: Sequence[PlacedToken]) -> list[PlacedToken]:
    """Without what the kit's macros put into one build only: a flattened kernel, and functions that are inlined."""
    kept: list[PlacedToken] = []
    for token in tokens:
        kept += [token] if token.text != "noinline" else []
        for empty in (["__attribute__", "(", "(", "flatten", ")", ")"], ["__attribute__", "(", "(", ")", ")"]):
            if [token.text for token in kept[-len(empty) :]] == empty:
                del kept[-len(empty) :]
    return kept


def _compare_foreign(command: Sequence[str], foreign: Sequence[Foreign]) -> None:
    """Headers must say what they say without the student's macros."""
    included = [part for part in foreign if part.lines and part.include.text.startswith("#include")]
    if not included:
        return
    text = "".join(f"{part.include.text}\n" for part in included)
    clean: list[list[str]] = []
    output, *_ = _preprocessed(command, f'#line 1 "kernel.cu"\n{text}')
    with contextlib.suppress(SourceError):  # of a file that is no foreign header after all
        clean = [part.lines for part in _scan(output).foreign if part.include.text.startswith("#include")]
    for part, lines in itertools.zip_longest(included, clean):
        if part is not None and part.lines != lines:
            raise _error(part.include, "a macro in front changes what this header says: include the header first")


# What is refused in the student's text


def _check_directives(text: str, file: str) -> None:
    """What must be seen before preprocessing: marks of files, which the compiler would believe."""
    line = 1
    for match in _TOKEN.finditer(_without_comments(text.replace("\\\n", ""))):
        where = PlacedToken(match[0], str(match.lastgroup), file, line)
        named = re.match(r"\s*#\s*line\b", match[0])
        if match.lastgroup == "directive" and re.match(r"\s*#\s*\d", match[0]):
            raise _error(where, "# and a number is what compilers write: a source uses #line")
        if match[0] in ("%:", "??"):
            raise _error(where, f"write {match[0]} as #")
        if named:
            named = re.fullmatch(r'\s*#\s*line\s+(\d+)(?:\s+"([\w./ +-]*)")?\s*', match[0])
            if not named:
                raise _error(where, '#line takes a number and a name of letters, digits, ".", "/", "+", "-" and "_"')
            file, line = named[2] or file, int(named[1]) - 1
        line += match[0].count("\n")


def _without_comments(text: str) -> str:
    def blank(match: "re.Match[str]") -> str:
        return match[0] if match[0][0] != "/" else " " + "\n" * match[0].count("\n")

    return _COMMENT.sub(blank, text)


def _check_token(tokens: Sequence[PlacedToken], i: int) -> None:
    token = tokens[i]
    if token.kind == "directive":
        _check_directive(token)
    elif token.kind == "name":
        _check_name(tokens, i)
    elif token.text in ("<:", ":>", "<%", "%>"):
        raise _error(token, f"{token.text} is another spelling of a bracket: write the bracket")
    elif token.text == "[" and _words(tokens, i, 2) == "[ [":
        _check_attributes(tokens, i + 2)


def _check_directive(token: PlacedToken) -> None:
    changed = re.match(r"#\s*(?:define|undef)\s+(\w+)", token.text)
    if changed and (changed[1] in _own_macros() or _RESERVED.match(changed[1])):
        raise _error(token, f"{changed[1]} belongs to CUDA: give your macro another name")
    if not changed and not re.match(r"#\s*include\b", token.text) and not _PRAGMAS.match(token.text):
        words = " ".join(re.findall(r"\w+", token.text)[:3])
        raise _error(token, f"#{words} changes how the compiler works and means nothing to nvcc: remove it")


def _check_name(tokens: Sequence[PlacedToken], i: int) -> None:
    token, name = tokens[i], tokens[i].text
    if reason := unsupported.name(name, _words(tokens, i + 1, 1)):
        raise _error(token, reason)
    if _HOST_NAMES.fullmatch(name) or (name == "atomic" and _words(tokens, i + 1, 1) == "<"):
        raise _error(token, f"{name} is for programs of the host: {ONLY_DEVICE}")
    if name in ("__attribute__", "__attribute"):
        _check_attributes(tokens, i + 3)
    if name == "noinline" and _words(tokens, i - 1, 1) == "::":
        raise _error(token, "write __noinline__, as CUDA does")
    if name.startswith("__builtin_") and not _BUILTINS.fullmatch(name):
        raise _error(token, f"{name} belongs to the compiler: {ONLY_DEVICE}")
    if name == "goto" and _words(tokens, i + 1, 1) == "*":
        raise _error(token, "goto takes the name of a label, as in CUDA")
    if _RESERVED.match(name) and not _EXPANSIONS.match(_words(tokens, i, 5)):
        raise _error(token, f"{name} belongs to the emulator or the compiler: {ONLY_DEVICE}")


def _check_attributes(tokens: Sequence[PlacedToken], begin: int) -> None:
    """The attributes between two opening and two closing brackets."""
    depth = 0
    for i in range(begin, len(tokens)):
        text = tokens[i].text
        depth += (text in "([") - (text in ")]")
        if depth < 0:
            return
        if depth or tokens[i].kind != "name" or _words(tokens, i + 1, 1) == "::":
            continue
        is_global = text == "section" and re.fullmatch(r'\( "[\w,]*pagedlab_globals" \)', _words(tokens, i + 1, 3))
        if not _ATTRIBUTES.fullmatch(text.strip("_")) and not is_global:
            raise _error(
                tokens[i], f"the attribute {text} is not CUDA's, and code of which is so marked is not emulated"
            )


def _words(tokens: Sequence[PlacedToken], begin: int, count: int) -> str:
    return " ".join(token.text for token in tokens[max(begin, 0) : begin + count])


@functools.cache
def _own_macros() -> set[str]:
    """The macros of the kit's headers on which builds rely."""
    text = "".join(path.read_text("utf-8") for path in HEADERS.rglob("*") if path.is_file())
    return {name for name in re.findall(r"#\s*define\s+(\w+)", text) if name.startswith("__")} | {"noinline", "flatten"}
