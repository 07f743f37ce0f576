"""What the text of a CUDA source tells beyond what its compiled module does: shapes, and what is around a line.

The text is looked at, not compiled: what is not plain to see is left out.
"""

import functools
import math
import re
from typing import NamedTuple

from grader.emulator.compiler.rewriter import numbered

_BLANK = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
_CONSTANT = re.compile(
    r"(?:\bconst(?:expr)?\s+(?:unsigned\s+)?\w+\s+|#\s*define\s+)(\w+)\s*=?\s*([\w\s+*/()-]+?)\s*[;,\n]"
)
_SHARED = re.compile(r"(extern\s+)?(?:static\s+)?__shared__\s+([^;=]*?)\b(\w+)\s*((?:\[[^\]]*\]\s*)+)((?:,[^;]*)?);")
_MORE = re.compile(r",\s*(\w+)\s*((?:\[[^\]]*\]\s*)+)")
_BARRIER = re.compile(r"__syncthreads|\bsync\s*\(")
_LOOPS, _BRANCHES = ("for", "while", "do"), ("if", "else", "switch")
ELEMENT_BYTES = {
    **dict.fromkeys(("char", "unsigned char", "signed char", "int8_t", "uint8_t", "bool"), 1),
    **dict.fromkeys(("short", "unsigned short", "__half", "half", "__nv_bfloat16", "nv_bfloat16", "bf16"), 2),
    **dict.fromkeys(("float", "int", "unsigned", "unsigned int", "__nv_bfloat162", "__half2", "half2"), 4),
    **dict.fromkeys(("double", "long long", "unsigned long long", "float2", "int2"), 8),
    **dict.fromkeys(("float4", "int4", "uint4"), 16),
}


class DeclaredArray(NamedTuple):
    """A declaration in shared memory; 0 in a shape and as `element`, bytes of an element: not plain to see."""

    name: str
    shape: tuple[int, ...]
    element: int
    is_dynamic: bool

    def indexed(self, offset: int) -> str:
        """The element at this byte; empty where that is no begin of one, or cannot be told."""
        if 0 in self.shape[1:] or not self.element or offset % self.element:
            return ""
        index, indices = offset // self.element, ""
        for size in self.shape[:0:-1]:
            indices = f"[{index % size}]{indices}"
            index //= size
        return f"{self.name}[{index}]{indices}"


class Surroundings(NamedTuple):
    """Of a line: braces and conditions around it, the loops that it is in (the innermost last), whether it waits."""

    depth: int = 0
    loops: tuple[int, ...] = ()
    is_barrier: bool = False


def static_array(source: str, kernel: str, name: str, size: int) -> DeclaredArray | None:
    """The shared array of this name and size in bytes, as a kernel or else the whole source declares it."""
    shapes = {array.shape for array in _near(source, kernel, False) if array.name == name}
    shape = shapes.pop() if len(shapes) == 1 else (0,)
    count = math.prod(shape)
    return DeclaredArray(name, shape, size // count, False) if count and size % count == 0 else None


def num_indices(source: str, kernel: str, name: str) -> int:
    """How many indices lead to an element of a static shared array of this name; 0 if it is unknown."""
    return min((len(array.shape) for array in _near(source, kernel, False) if array.name == name), default=0)


def dynamic_array(source: str, kernel: str) -> DeclaredArray | None:
    """The array `extern __shared__` of a kernel, or else of the whole source where that has just one."""
    declared = set(_near(source, kernel, True))
    return declared.pop() if len(declared) == 1 else None


@functools.lru_cache(maxsize=16)
def surroundings(source: str) -> dict[tuple[str, int], Surroundings]:
    """What is around each line, by file and number as #line directives give them."""
    depths, loops = _nesting(_without_comments(source))
    lines = numbered(_without_comments(source, keep_strings=True))
    return {place: Surroundings(depths[i], loops[i], bool(_BARRIER.search(text))) for i, place, text in lines}


def _nesting(text: str) -> tuple[list[int], list[tuple[int, ...]]]:
    """Of each line how deep it is, and the numbers of the loops around it."""
    depths = [0]
    loops: list[tuple[int, ...]] = [()]
    scopes: list[tuple[int, ...]] = []  # of each open brace: the loops that it begins
    begun: tuple[int, ...] = ()  # by the running statement
    num_loops = num_branches = brackets = 0
    for token in re.finditer(r"\n|[{}();]|\w+", text):
        word = token[0]
        if word == "\n":
            depths.append(0)
            loops.append(())
            continue
        brackets += (word == "(") - (word == ")")
        if word in _LOOPS:
            num_loops += 1
            begun = (*begun, num_loops)
        num_branches += word in _BRANCHES
        if word != "}":
            depths[-1] = max(depths[-1], len(scopes) + len(begun) + num_branches)
            loops[-1] = max(loops[-1], (*(loop for scope in scopes for loop in scope), *begun), key=len)
        if word in "{};" and brackets == 0:
            if word == "{":
                scopes.append(begun)
            elif word == "}" and scopes:
                scopes.pop()
            begun, num_branches = (), 0
    return depths, loops


def _near(source: str, kernel: str, is_dynamic: bool) -> list[DeclaredArray]:
    """Arrays that the kernel declares, or where it has none of the kind, all of the source."""
    text = _without_comments(source)
    begin = re.search(rf"__global__[^;{{}}]*?\b{re.escape(kernel)}\s*\(", text)
    end = text.find("__global__", begin.end()) if begin else -1
    own = text[begin.start() : end if end >= 0 else len(text)] if begin else ""
    constants = {match[1]: match[2] for match in _CONSTANT.finditer(text)}
    for part in (own, text):
        if found := [array for array in _declared(part, constants) if array.is_dynamic == is_dynamic]:
            return found
    return []


def _declared(text: str, constants: dict[str, str]) -> list[DeclaredArray]:
    found = []
    for match in _SHARED.finditer(text):
        words = re.sub(r"(__align__|alignas|__attribute__)\s*\(+[^)]*\)+", "", match[2]).split()
        element = ELEMENT_BYTES.get(" ".join(word for word in words if word not in ("volatile", "const")), 0)
        for name, sizes in [(match[3], match[4]), *_MORE.findall(match[5])]:
            shape = tuple(_value(size, constants) for size in re.findall(r"\[([^\]]*)\]", sizes))
            found.append(DeclaredArray(name, shape, element, bool(match[1])))
    return found


def _value(text: str, constants: dict[str, str], depth: int = 4) -> int:
    """Of sums and products of integers and of constants of the source; 0 where it is none."""
    if depth and re.search(r"[A-Za-z_]", text):
        named = re.sub(r"\b[A-Za-z_]\w*", lambda word: f"({constants.get(word[0], '?')})", text)
        return _value(named, constants, depth - 1)
    terms = re.sub(r"[\s()]", "", text) if not re.search(r"\([^()]*[+-]", text) else ""
    if not re.fullmatch(r"\d+([+*-]\d+)*", terms):
        return 0
    signed = re.findall(r"([+-]?)(\d+(?:\*\d+)*)", terms)
    return sum((-1 if sign == "-" else 1) * math.prod(map(int, term.split("*"))) for sign, term in signed)


@functools.lru_cache(maxsize=32)
def _without_comments(source: str, keep_strings: bool = False) -> str:
    """The text with spaces for comments and strings; lines stay where they are."""
    return _BLANK.sub(
        lambda match: match[0] if keep_strings and match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0]), source
    )
