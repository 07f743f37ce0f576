"""PyCUDA's interface on the emulated GPU: what a program imports as `pycuda` where there is no NVIDIA GPU.

Names, signatures, exceptions and habits are those of PyCUDA 2026.1, the awkward ones too. Three things are errors here
because silence would hide a mistake: a wrong number of kernel arguments, an argument of a wrong width or kind, and a
NumPy array passed by value. What is not emulated raises NotImplementedError with its name.
"""

import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

VERSION = (2026, 1)
VERSION_TEXT = "2026.1"

_LINES = Path(__file__).with_name("known_names.txt").read_text(encoding="utf-8").splitlines()[2:]
KNOWN_NAMES = {owner: names.split() for owner, _, names in (line.partition(": ") for line in _LINES)}


def refuse(owner: str, name: str) -> NoReturn:
    """What reading an attribute raises that the emulator lacks: is it a name of PyCUDA's, or of nothing?"""
    if name in KNOWN_NAMES[owner]:
        raise NotImplementedError(f"{owner}.{name} is not emulated: it needs PyCUDA itself and a GPU")
    raise AttributeError(f"'{owner}' has no attribute '{name}'")


class _Finder:
    """Import hook: a module of PyCUDA that the emulator lacks says so, instead of "no module named"."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        package, _, module = name.partition(".")
        if package == "pycuda" and module in KNOWN_NAMES["pycuda"]:
            refuse(package, module)


sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]


def _tell_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback that ends in the program: PyCUDA's own functions, most of them compiled, are hardly in one."""
    told = traceback.TracebackException(kind, error, trace)
    own = str(Path(__file__).parent)
    told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if not frame.filename.startswith(own)])
    print(*told.format(), sep="", end="", file=sys.stderr)


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = _tell_error
