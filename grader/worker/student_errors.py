"""What a worker reports as an exception, as the verdict and the sentence that a student reads."""

import re
from pathlib import Path
from typing import Any

from grader.failure import Failure
from grader.text import clean

MAX_TEXT = 16_000

_DEVICE_ERRORS = (
    ("illegal memory access", "OUT_OF_BOUNDS", "The kernel read or wrote an address outside of its arrays."),
    ("misaligned address", "MISALIGNED_ACCESS", "A vector access of the kernel was at no multiple of its size."),
    ("device-side assert", "RUNTIME_ERROR", "An assert in the kernel failed."),
    ("unspecified launch failure", "CRASHED", "The kernel was aborted."),
    ("emulated GPU stopped", "CRASHED", "A kernel crashed the emulated GPU."),
)  # fmt: skip
_CUDA_NAMES = {
    r"SmallFloat<(?:pagedlab::)?BrainCoding>": "__nv_bfloat16",
    r"SmallFloat2<(?:pagedlab::)?BrainCoding>": "__nv_bfloat162",
    r"SmallFloat2<(?:pagedlab::)?HalfCoding>": "__half2",
    r"SmallFloat<(?:pagedlab::)?HalfCoding>": "__half",
}
_MIXED = re.compile(
    r"(?:operand types|ambiguous|invalid operands|matches these operands)[^;]{0,300}?\b(__nv_bfloat16|__half)\b(?! *\*)"
)
CONVERT = {
    "__nv_bfloat16": (
        "__nv_bfloat16 and float do not mix in one operation: convert with __bfloat162float(x) before you compute, and "
        "with __float2bfloat16(y) when you store."
    ),
    "__half": (
        "__half and float do not mix in one operation: convert with __half2float(x) before you compute, and with "
        "__float2half(y) when you store."
    ),
}
_OWN_PLACE = re.compile(r"([\w-]+\.cuh?)[:(](\d{1,7})\b")
_OWN_LINE = re.compile(r"[^\s/:(]+\.cuh?[:(]")
_NOT_FOUND = re.compile(r"No module named 'engine(?:\.(\w+))?'")


class StudentError(Failure):
    """An exception that the student's code, or a launcher on its behalf, raised in the worker.

    `type_names` are the exception's class and its bases, `text` what it said, `where` the student's `file:line`.
    """

    def __init__(self, type_names: tuple[str, ...], text: str, where: str = "", log: str = "") -> None:
        self.type_names = type_names
        self.text = text
        self.where = where
        if "CompileError" in type_names:
            log, text = own_lines(with_cuda_names(log)), with_cuda_names(text)
        verdict, message = _verdict(type_names, text, where, log)
        super().__init__(verdict, message, {"log": log} if log else None)
        if verdict == "COMPILE_ERROR" and (found := _MIXED.search(f"{message}\n{log}")):
            self.evidence["hint"] = CONVERT[found[1]]


def student_error(report: Any, scrub: dict[str, str]) -> StudentError:
    """The error of a worker's report; `scrub` maps paths of this machine to what is shown for them.

    Raises ValueError for a report of another form.
    """
    match report:
        case {"types": [str(), *_] as types, "text": str(text), "where": str(where), "log": str(log)}:
            if all(isinstance(name, str) for name in types):
                return StudentError(
                    tuple(clean(name, 80) for name in types[:16]),
                    tidy(text, scrub),
                    tidy(where, scrub)[:200],
                    tidy(log, scrub),
                )
    raise ValueError("an error report of another form")


def tidy(text: str, scrub: dict[str, str]) -> str:
    """Text of a child as it may be shown: bounded, without control characters and private paths."""
    text = text[-4 * MAX_TEXT :]
    for path, shown in scrub.items():
        text = text.replace(path, shown)
    text = re.sub(r"/tmp/(?:tmp|pagedlab)[\w.-]*/", "", text)
    return clean(text, MAX_TEXT)


def _verdict(types: tuple[str, ...], text: str, where: str, log: str) -> tuple[str, str]:
    if "NotImplementedError" in types:
        return "NOT_IMPLEMENTED", f"{text or 'This part'} is not implemented yet{_at(where)}."
    if "CompileError" in types:
        return "COMPILE_ERROR", f"The compiler refused the kernel: {first_error(log or text)}"
    if "KernelNotFoundError" in types:
        return "COMPILE_ERROR", text
    if "LaunchConfigError" in types:
        return "RUNTIME_ERROR", text
    if types[0] == "MemoryError" and "Error" in types:
        return "OUT_OF_MEMORY", f"The device's memory is used up{_at(where)}: {text}"
    for phrase, verdict, sentence in _DEVICE_ERRORS:
        if phrase in text and "Error" in types:
            return verdict, f"{sentence} ({text.strip()})"
    missing = _NOT_FOUND.search(text)
    if "ModuleNotFoundError" in types and missing:
        return (
            "RUNTIME_ERROR",
            f"engine/{missing[1] or ''}{'.py' if missing[1] else ''} is missing from the submission.",
        )
    return "RUNTIME_ERROR", f"{types[0]}{_at(where)}{': ' if text else ''}{text}"


def first_error(log: str) -> str:
    """The first error in a compiler's output, in the student's own file if there is one: others follow from it."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b", line)]
    own = [line for line in errors if _OWN_LINE.match(line)]
    return (own or errors or lines or ["it said nothing"])[0]


def source_lines(engine: Path, message: str) -> list[tuple[int, str]] | None:
    """The line of a kernel's file that a compiler's error names, after the one before it, where a `;` may be missing.

    None where the message names no line of a file in engine/kernels.
    """
    found = _OWN_PLACE.search(message)
    try:
        lines = (engine / "kernels" / found[1]).read_text("utf-8", "replace").splitlines() if found else []
    except OSError:
        return None
    last = int(found[2]) if found else 0
    return [(n, lines[n - 1]) for n in (last - 1, last) if 0 < n <= len(lines)] or None


def with_cuda_names(log: str) -> str:
    """A compiler's output with CUDA's names of the small floats, which are classes of the emulator's headers."""
    for own, name in _CUDA_NAMES.items():
        log = re.sub(rf" [{{(]aka '(?:const )?(?:pagedlab::)?{own}'[}})]", "", log)
        log = re.sub(rf"(?:pagedlab::)?{own}", name, log)
    return log


def own_lines(log: str) -> str:
    """What a compiler said of the student's own file, with the source lines it shows; all, where that is no error."""
    kept, own = [], False
    for line in log.splitlines(keepends=True):
        own = own if line.startswith(" ") else bool(_OWN_LINE.match(line))
        kept += [line] if own else []
    return "".join(kept) if any(re.search(r"\berror\b", line) for line in kept) else log


def _at(where: str) -> str:
    return f" in {where}" if where else ""
