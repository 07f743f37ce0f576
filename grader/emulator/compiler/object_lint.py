"""Looks at what the compiler made of a kernel: the calls that are left, and the symbols of the object file."""

import re
import subprocess

from grader.emulator.compiler.lint import ONLY_DEVICE
from grader.emulator.compiler.object_file import ObjectFile
from grader.emulator.compiler.rewriter import SourceError

# Not compiled as accesses to memory, which would have no hooks: so they are undefined, and no device functions.
_NOT_BUILT_IN = (
    "mempcpy", "memcmp", "memchr", "bcmp", "bcopy", "bzero", "strlen", "strnlen", "strcpy", "strncpy", "stpcpy",
    "stpncpy", "strcat", "strncat", "strcmp", "strncmp", "strcasecmp", "strncasecmp", "strchr", "strrchr", "strstr",
    "strpbrk", "strspn", "strcspn", "index", "rindex", "sprintf", "snprintf", "vsprintf", "vsnprintf",
)  # fmt: skip
HOOKED = ("memcpy", "memmove", "memset", "modff", "modf", "frexpf", "frexp", "sincosf", "sincos")
"""Functions of the C library that write to memory; the runtime has a __wrap_… with hooks for each."""
FLAGS = ("-Werror=vla", *(f"-fno-builtin-{name}" for name in _NOT_BUILT_IN))
"""Of the compiler: what these looks rely on."""
DUMP = "-fdump-tree-optimized-lineno-uid"
"""The option of g++ that names the file for the text of `check_calls`."""

_PLACE = re.compile(r"\[([^\]\n]*:\d+):\d+(?: discrim \d+)?\] ")
_INDIRECT_CALL = re.compile(
    r'\s*(?:[^"=]*? = (?:\{v\} )?)?(?:OBJ_TYPE_REF\(.*?\)|<<< Unknown tree.*?>>>|[\w.$]*_\d+(?:\(\w+\))*) \('
)
_MATH = (
    "a?(?:cos|sin|tan)h?|atan2|cbrt|ceil|copysign|erfc?|exp(?:10|2|m1)?|fabs|fdim|floor|fm(?:a|ax|in|od)|frexp|hypot|"
    "i?logb|[jy][01n]|ldexp|lgamma|l?l?rint|l?l?round|log(?:10|1p|2)?|modf|nearbyint|nextafter|nexttoward|pow|"
    "remainder|roundeven|scalbl?n|sincos|sqrt|tgamma|trunc"
)
_PROVIDED = re.compile(
    rf"(?:__wrap_)?(?:(?:{_MATH})[fl]?|mem(?:cpy|move|set))|__tsan_(?!atomic|volatile)\w+|__ubsan_handle_\w+|pagedlab_\w+|"
    "threadIdx|blockIdx|blockDim|gridDim|__tls_get_addr|_GLOBAL_OFFSET_TABLE_|"
    "_ITM_\\w+|__gmon_start__|__cxa_finalize"
)
_HOST_SECTIONS = re.compile(r"\.data(?!\.rel\.ro)|\.bss|__data|__bss|__common")
_OWN_SYMBOLS = re.compile(
    r"pagedlab_kernel_\w+|pagedlab_shared|_GLOBAL_OFFSET_TABLE_|completed\.\d+|__dso_handle|__TMC_END__"
)

_CONSTRUCTED = "a static variable needs a constant as its value: a GPU runs no constructors"
_INDIRECT = (
    "which function is called here is known only when the kernel runs: choose with if, or make the function a template "
    "argument; pointers to functions and virtual functions are not emulated"
)


def check_calls(dump: str) -> None:
    """Look at the calls that are left in a plain build, by the compiler's dump of it. Raises SourceError."""
    for line in dump.splitlines():
        if " (" in line and _INDIRECT_CALL.match(_PLACE.sub("", line)):
            raise SourceError(f"{_place(line)}: error: {_INDIRECT}\n")


def check_object(module: ObjectFile, dump: str) -> None:
    """Look at the symbols of a module; the dump, of a plain build, gives the lines. Raises SourceError."""
    for name in module.undefined:
        if name.startswith("__cxa_guard"):
            raise _symbol_error(dump, name, _CONSTRUCTED)
        if not _PROVIDED.fullmatch(name):
            raise _symbol_error(dump, name, f"{{}} is called, but no device function: {ONLY_DEVICE}")
    for symbol in module.symbols:
        name = symbol.name
        if name.startswith("_GLOBAL__sub_"):
            raise SourceError(f"{_place_in_function(dump, name)}: error: {_CONSTRUCTED}\n")
        if _OWN_SYMBOLS.fullmatch(name):
            continue
        if _PROVIDED.fullmatch(name):
            raise _symbol_error(
                dump, name, "{} is a name of CUDA's, of the C library or of the emulator: choose another"
            )
        if symbol.size and _HOST_SECTIONS.match(symbol.section) and not name.startswith((".L", "L")):
            raise _symbol_error(
                dump, name, "{} is a variable of the host: write __device__ in front, or make it constexpr"
            )


def _symbol_error(dump: str, symbol: str, message: str) -> SourceError:
    """An error at the first line that mentions a symbol."""
    plain = symbol
    if symbol.startswith("_Z"):
        plain = subprocess.run(["c++filt", symbol], capture_output=True, text=True).stdout.strip()
    word = re.split(r"[(<]", plain)[0].rpartition("::")[2]
    mentions = re.findall(rf"^.*\b{re.escape(word)}D\.\d.*$", dump, re.MULTILINE)
    places = [*filter(None, map(_place, mentions)), _place_in_function(dump, symbol)]
    place = next((place for place in places if place[0] != "/"), places[0])  # rather the student's than a header's
    return SourceError(f"{place}: error: {message.format(plain)}\n")


def _place_in_function(dump: str, symbol: str) -> str:
    return _place(dump.partition(f"({symbol}, ")[2]) or "kernel.cu:1"


def _place(text: str) -> str:
    """The first place of the source in a part of a dump."""
    found = _PLACE.search(text)
    return found[1] if found else ""
