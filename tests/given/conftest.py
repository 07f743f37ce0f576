"""The emulated GPU for tests that launch: the emulated pycuda first on the path, its context current."""

import sys

import pytest

from grader import KIT


@pytest.fixture(scope="session")
def emulated_gpu() -> None:
    sys.path.insert(0, str(KIT / "grader" / "emulator" / "client"))
    import pycuda.autoprimaryctx  # noqa: F401
