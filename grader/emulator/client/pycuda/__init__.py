"""PyCUDA's interface on the emulated GPU: what a program imports as `pycuda` where there is no NVIDIA GPU.

Names, signatures, exceptions and habits are those of PyCUDA 2026.1, the awkward ones too. Three things are errors here
because silence would hide a mistake: a wrong number of kernel arguments, an argument of a wrong width or kind, and a
NumPy array passed by value. What is not emulated raises NotImplementedError with its name.
"""

import sys
from collections.abc import Sequence
from types import ModuleType

VERSION = (2026, 1)
VERSION_STATUS = ""
VERSION_TEXT = "2026.1"

_NOT_EMULATED = {"characterize", "cumath", "curandom", "debug", "elementwise", "gl", "reduction", "scan", "sparse"}


class _RefuseModules:
    """Import hook: a part of PyCUDA that the emulator lacks says so, instead of "no module named"."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        package, _, module = name.partition(".")
        if package == "pycuda" and module in _NOT_EMULATED:
            raise NotImplementedError(f"{name} is not emulated: it needs a GPU and PyCUDA itself")


sys.meta_path.insert(0, _RefuseModules)  # type: ignore[arg-type]
