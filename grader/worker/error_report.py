"""The worker's report of an exception of student code, from which student_errors.py makes a Failure."""

import traceback
from pathlib import Path
from typing import Any

MAX_TEXT = 64_000


def describe(error: BaseException, engine: Path) -> dict[str, Any]:
    """An exception as plain data: its classes, text, the student's last line in it, the compiler's output."""
    names = [kind.__name__ for kind in type(error).__mro__]
    is_compile_error = "CompileError" in names
    try:
        text = str(error.msg if is_compile_error else error)  # type: ignore[attr-defined]
        log = str(error.stderr or "") if is_compile_error else ""  # type: ignore[attr-defined]
    except BaseException as fault:  # student code may run here
        text, log = f"(its text cannot be made: {type(fault).__name__})", ""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    where = [f"{Path(f).relative_to(engine)}:{line}" for f, line in places if Path(f).is_relative_to(engine)]
    on_device = any(kind.__module__.startswith("pycuda") for kind in type(error).__mro__)
    return {
        "types": names[:16],
        "text": text[-MAX_TEXT:],
        "where": where[-1] if where else "",
        "log": log[:MAX_TEXT],
        "device": on_device and not is_compile_error,
    }
