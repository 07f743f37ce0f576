"""Compiles kernels and the emulator's runtime with the system's C++ compiler; keeps the results by content.

The cache is a folder that several processes may use at once: files appear complete or not at all.
"""

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grader.emulator.compiler import lint, object_lint
from grader.emulator.compiler.headers import HEADERS, with_headers
from grader.emulator.compiler.limits import WAITING_SECONDS, limited
from grader.emulator.compiler.object_file import read_object
from grader.emulator.compiler.rewriter import SourceError, rewrite
from grader.emulator.compiler.symbols import read_symbols

FOLDER = Path(__file__).resolve().parent.parent
RUNTIME = FOLDER / "runtime"
CACHE = Path(os.environ.get("PAGEDLAB_CACHE") or FOLDER.parent.parent / ".cache" / "emulator")
DEBUG = os.environ.get("PAGEDLAB_DEBUG_KERNELS") == "1"
"""Whether plain builds are made for a debugger: with its tables, not optimised, their sources kept beside them."""
MAX_STATIC_SHARED = 48 * 1024

_COMMON = (
    "-std=c++17", "-fPIC", "-shared", "-fno-math-errno", "-fno-strict-aliasing", "-fwrapv",
    "-fno-delete-null-pointer-checks", "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-U_FORTIFY_SOURCE",
    f"-I{HEADERS}",
)  # fmt: skip
_KERNEL = (
    "-O2",
    "-ffp-contract=off",
    "-Wformat",  # of printf
    "-fno-exceptions",
    "-fno-plt",
    "-fno-semantic-interposition",
    "-fstack-clash-protection",  # large frames touch every page, so also those of the guard
    *object_lint.FLAGS,
    "-include",
    "cuda_runtime.h",
)
_DEBUGGED = ("-O0", "-g3")
_GCC_DEBUGGED = ("-fno-eliminate-unused-debug-symbols",)  # blockIdx and the like, also where a kernel uses none
_INSTRUMENTED = ("-O1", "-g1", "-fsanitize=thread", "-DPAGEDLAB_INSTRUMENTED")
_WILD_FORMAT = re.compile(
    r"warning: (?=.*(?:'%[^']*s' expects|expects a matching|type 'char \*'|more '%' conversions))"
)
"""What -Wformat says where printf would print whatever lies at a place that is none."""
_GCC = ("-fno-gnu-unique",)
_GCC_INSTRUMENTED = (
    "-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset",
    "-fsanitize=bounds", "-fno-tree-sra", "-fno-ivopts", "--param", "tsan-instrument-func-entry-exit=0",
)  # fmt: skip
_CLANG = ("-Wno-unused-command-line-argument",)
_CLANG_INSTRUMENTED = (
    "-fdebug-default-version=4", "-fsanitize=array-bounds", "-mllvm", "-tsan-instrument-read-before-write=1",
    "-mllvm", "-tsan-instrument-func-entry-exit=0",
)  # fmt: skip
_NVCC_ONLY = re.compile(
    r"-O[0-3]|-g|-G|-w|-m64|-?-lineinfo|-?-use_fast_math|-?-fmad.*|-?-restrict|-rdc.*|-?-arch.*|-?-gpu-.*|-?-generate-code.*|"
    r"-gencode.*|-Xptxas.*|-Xcompiler.*|--ptxas-options.*|-?-maxrregcount.*|-?-expt-.*|-?-extended-lambda"
)


class CompileError(Exception):
    """The compiler refused a source."""

    def __init__(self, log: str, command: Sequence[str]) -> None:
        super().__init__(log)
        self.log = log
        self.command = list(command)


class CompiledModule(NamedTuple):
    """A compiled source: the shared object, and what is known of it without loading it."""

    path: Path
    command: list[str]
    cached: bool
    source: str
    """With the headers that it includes, each between #line directives that name it."""
    log: str
    kernels: list[str]
    parameters: dict[str, list[str]]
    """Their names, per kernel."""
    source_name: str
    """The name of the file, for messages."""
    shared: dict[str, int]
    """Bytes of static shared memory per kernel."""
    shared_bytes: int
    """Of all static shared variables together …"""
    shared_anchor: int
    """… and the offset of the anchor (see emulated/entry.h) in them."""
    shared_variables: dict[str, tuple[int, int, str | None]]
    """Each of them by its symbol: offset, bytes, and the kernel that alone uses it."""
    globals: dict[str, list[int]]
    """Variables in global and constant memory: address in the file, and bytes."""
    globals_extent: list[int]
    """Of all of them: address in the file, and bytes."""
    constants: dict[str, list[int]]
    """Those of them that cannot change, which lie elsewhere: address in the file, and bytes."""
    code: list[int]
    """Instructions: address in the file, and bytes."""
    image_bytes: int
    """Of all that is loaded."""
    reference: int
    """Address in the file of the function pagedlab_shared, which every module has."""


@functools.cache
def compiler() -> str:
    """Path of the C++ compiler: $CXX, g++ or clang++. Raises CompileError when there is none."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise CompileError("no C++ compiler was found: install g++ or clang++ (Debian, Ubuntu: apt install g++)\n", [])


@functools.cache
def _version() -> str:
    return subprocess.run([compiler(), "--version"], capture_output=True, text=True).stdout


@functools.cache
def _machine_flags() -> tuple[str, ...]:
    """Instructions of every x86 processor of the last ten years, unless this one lacks them; no guards of jumps."""
    if platform.machine() not in ("x86_64", "AMD64"):
        # A switch of fibers keeps no x18; functions for atomics would come from a library.
        return ("-mbranch-protection=none", "-ffixed-x18", "-mno-outline-atomics")
    try:
        known = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        known = []
    return ("-fcf-protection=none", *(("-march=x86-64-v3",) if {"avx2", "fma", "bmi2"} <= set(known) else ()))


@functools.cache
def _fingerprint() -> bytes:
    """Of all that a compiled file may depend on besides its own text: compiler, kit headers, runtime, these modules."""
    digest = hashlib.sha256(_version().encode())
    own = [*HEADERS.rglob("*"), *RUNTIME.glob("*"), *Path(__file__).parent.glob("*.py")]
    for path in sorted(path for path in own if path.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()


def _key(*parts: str) -> str:
    digest = hashlib.sha256(_fingerprint())
    for part in parts:
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()[:32]


def runtime_library() -> Path:
    """The shared object of the runtime, compiled at first use."""
    flags = [
        *_COMMON,
        *_machine_flags(),
        "-O3",
        *(("-mno-red-zone",) if platform.machine() in ("x86_64", "AMD64") else ()),  # see fiber.h
        "-ftls-model=initial-exec",
        "-fno-semantic-interposition",
        "-pthread",
    ]
    path = CACHE / f"runtime-{_key(*flags)}.so"
    if not path.exists():
        sources = [str(source) for source in sorted(RUNTIME.glob("*.cpp"))]
        found_by = f"-Wl,-install_name,@rpath/{path.name}"
        linking = [found_by] if sys.platform == "darwin" else ["-Wl,-Bsymbolic-functions", "-ldl"]
        _compile([compiler(), *flags, *sources, *linking], "", path)
    return path


def compile_module(
    source: str, options: Sequence[str], include_dirs: Sequence[str], *, instrumented: bool
) -> CompiledModule:
    """The module of one CUDA C source, from the cache where it is there; `instrumented` with hooks at each access.

    Raises CompileError.
    """
    macros, own_options = _macros(_compiler_options(options))
    if re.search("[\ud800-\udfff]", source):
        raise CompileError("kernel.cu: error: the source is no text: read its file as UTF-8\n", [])
    folders = [Path(option[2:]) for option in own_options if option.startswith("-I")] + [*map(Path, include_dirs)]
    own_options = [option for option in own_options if not option.startswith("-I")]
    command = [compiler(), *_flags(instrumented), *own_options]
    written = source if source.lstrip().startswith("#line") else f'#line 1 "kernel.cu"\n{source}'
    try:
        source = with_headers(written, folders, by_path=DEBUG)
    except SourceError as error:
        raise CompileError(str(error), command) from None
    path = CACHE / f"module-{_key(macros, source, *command)}.so"
    facts = _known(path)
    cached = facts is not None
    if facts is None:
        try:
            text, kernels, constants = rewrite(source)
            own_part = command[len(_flags(instrumented)) + 1 :]
            both = [[compiler(), *flags, *_read_header(flags), *own_part] for flags in (_flags(False), _flags(True))]
            text, said = lint.check_text(both, macros + text)[instrumented]
            kept = _kept_source(path.with_suffix(""), written) if DEBUG else ()
            log = said + _checked([*command, *kept], text, path, not instrumented)
        except SourceError as error:
            raise CompileError(str(error), command) from None
        name = re.search(r'#\s*line\s+\d+\s+"([^"]*)"', source)
        facts = {"log": log, "kernels": list(kernels), "parameters": kernels, "source_name": name[1] if name else ""}
        facts |= read_symbols(path, list(kernels), constants)
        _refuse_large_shared(facts["shared"], command)
        with _written(path.with_suffix(".json")) as temporary:
            noted = json.dumps(facts)
            temporary.write_text(f"{noted}\n{_digest(path, noted)}")
    return CompiledModule(path=path, command=command, cached=cached, source=source, **facts)


def _checked(command: Sequence[str], text: str, path: Path, is_plain: bool) -> str:
    """Compile preprocessed text and look for what kernels must not do; returns what the compiler said besides."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=f"unfinished-{os.getpid()}-") as folder:
        calls = Path(folder, "calls")
        dumped = (f"{object_lint.DUMP}={calls}",) if is_plain and not DEBUG and "clang" not in _version() else ()
        at = command.index("-include")
        log = _compile([*command[:at], *command[at + 2 :], *dumped, "-x", "c++-cpp-output", "-"], text, path)
        dump = calls.read_text("utf-8", "replace") if dumped else ""
    if _WILD_FORMAT.search(log):
        raise SourceError(_WILD_FORMAT.sub("error: ", log))
    object_lint.check_calls(dump)
    object_lint.check_object(read_object(path.read_bytes()), dump)
    return log


def _kept_source(folder: Path, source: str) -> tuple[str, ...]:
    """Write the text of a source that has no file of its own, and let the debugger's tables name that file."""
    _, found, text = source.rpartition('#line 1 "kernel.cu"\n')
    if not found:
        return ()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cu").write_text(text, encoding="utf-8")
    return (f"-fdebug-prefix-map=kernel.cu={folder / 'kernel.cu'}",)


def _known(path: Path) -> dict[str, Any] | None:
    """What was noted of a compiled module; None when its files are not there, or not as they were written."""
    try:
        noted, _, digest = path.with_suffix(".json").read_text().rpartition("\n")
        facts: dict[str, Any] | None = json.loads(noted) if digest == _digest(path, noted) else None
        return facts
    except (OSError, ValueError):
        return None


def _digest(path: Path, noted: str) -> str:
    """Of a compiled module and what was noted of it."""
    return hashlib.sha256(path.read_bytes() + noted.encode()).hexdigest()


def _flags(instrumented: bool) -> list[str]:
    is_clang = "clang" in _version()
    flags = [*_COMMON, *_machine_flags(), *_KERNEL, *(_CLANG if is_clang else _GCC)]
    if instrumented:
        flags += [*_INSTRUMENTED, *(_CLANG_INSTRUMENTED if is_clang else _GCC_INSTRUMENTED)]
    elif DEBUG:
        flags += [*_DEBUGGED, *(() if is_clang else _GCC_DEBUGGED)]
    return [*flags, *_linking(instrumented)]


def _linking(instrumented: bool) -> tuple[str, ...]:
    """Where a module finds what it calls: in the process that loads it, and never in the sanitizer's own runtime.

    macOS's linker must see where thread-local variables come from. Elsewhere it leads copies to the hooks, which
    compilers may call without a hook's name.
    """
    if sys.platform == "darwin":
        return (str(runtime_library()), "-Wl,-rpath,@loader_path", "-fno-sanitize-link-runtime")
    hooked = [f"-Wl,--wrap={name}" for name in object_lint.HOOKED] if instrumented else []
    return ("-nodefaultlibs", "-Wl,-Bsymbolic", *hooked)


def _read_header(flags: Sequence[str]) -> tuple[str, ...]:
    """Where g++ finds the kit's header as it was read once; with other options of the student's it reads it again."""
    if "clang" in _version():
        return ()
    path = CACHE / f"header-{_key(*flags)}" / "cuda_runtime.h.gch"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _compile([compiler(), *flags, "-c", "-x", "c++-header", str(HEADERS / "cuda_runtime.h")], "", path)
    return ("-iquote", str(path.parent), "-fpch-preprocess")


def _compiler_options(options: Sequence[str]) -> list[str]:
    """Of nvcc's options those that mean something here; the others concern machine code."""
    kept = [option for option in options if not _NVCC_ONLY.fullmatch(option)]
    for option in kept:
        if not re.match(r"-[DUI].|--?std=c\+\+", option):
            known = "the emulator knows -D, -U, -I, -std and nvcc's options for code generation"
            raise CompileError(f"nvcc fatal   : Unknown option '{option}' ({known})\n", ["nvcc", *options])
    return [option.replace("--std", "-std") for option in kept]


def _macros(options: Sequence[str]) -> tuple[str, list[str]]:
    """Definitions of macros as text, so that they come behind the kit's headers, and the other options."""
    lines = []
    for option in options:
        name, is_given, value = option[2:].partition("=")
        lines += [f"#define {name} {value if is_given else 1}\n"] * option.startswith("-D")
        lines += [f"#undef {name}\n"] * option.startswith("-U")
    text = "".join(['#line 1 "options"\n', *lines]) if lines else ""
    return text, [option for option in options if not option.startswith(("-D", "-U"))]


def _compile(command: Sequence[str], text: str, path: Path) -> str:
    """Compile `text` into `path`; returns what the compiler said besides."""
    with _written(path) as temporary:
        try:
            result = subprocess.run(
                limited([*command, "-o", str(temporary)]),
                input=text.encode(),
                capture_output=True,
                timeout=WAITING_SECONDS,
                env={**os.environ, "LC_ALL": "C", "TMPDIR": str(temporary.parent)},
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"the compiler did not end within {WAITING_SECONDS} s\n", command) from None
        log = result.stderr.decode("utf-8", "replace")
        if result.returncode:
            raise CompileError(log, command)
    return log


@contextlib.contextmanager
def _written(path: Path) -> Iterator[Path]:
    """A file in a folder of its own that becomes `path` when all went well."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for folder in CACHE.glob("unfinished-*"):  # of processes that were killed, their owners too
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > 10 * WAITING_SECONDS:
                shutil.rmtree(folder)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=f"unfinished-{os.getpid()}-") as own:
        yield Path(own, path.name)
        for tables in Path(own).glob("*.dSYM"):  # of lines, on macOS
            shutil.rmtree(path.parent / tables.name, ignore_errors=True)
            os.replace(tables, path.parent / tables.name)
        os.replace(Path(own, path.name), path)


def remove_unfinished(process: int) -> None:
    """Remove what a process that was killed left of a compilation."""
    for folder in CACHE.glob(f"unfinished-{process}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_large_shared(shared: dict[str, int], command: Sequence[str]) -> None:
    for kernel, size in shared.items():
        if size > MAX_STATIC_SHARED:
            raise CompileError(
                f"ptxas error   : Entry function '{kernel}' uses too much shared data "
                f"({size:#x} bytes, {MAX_STATIC_SHARED:#x} max)\n",
                command,
            )
