"""Lets the tests of this folder import the emulated pycuda, and gives them one context on one device process."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.emulator.compiler import toolchain

KIT = Path(__file__).resolve().parents[2]
CLIENT = KIT / "grader" / "emulator" / "client"
sys.path.insert(0, str(CLIENT))

Program = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def context() -> Iterator[None]:
    """A current context in this process."""
    import pycuda.driver as driver

    driver.init()
    current = driver.Device(0).make_context()
    yield
    current.pop()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Runs a Python program that sees only the emulated pycuda, with a device process of its own."""

    def run(source: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        script = tmp_path / "program.py"
        script.write_text(f"import sys\nsys.path.insert(0, {str(CLIENT)!r})\n{source}")
        command = [sys.executable, "-B", str(script)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=timeout)

    return run


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for what is compiled in this process."""
    for folder in toolchain.CACHE.glob("header-*"):  # to read the kit's headers takes as long as several kernels
        (tmp_path / folder.name).symlink_to(folder)
    monkeypatch.setattr(toolchain, "CACHE", tmp_path)
    return tmp_path
