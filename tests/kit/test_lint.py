"""Style is checked by tools: ruff, mypy and clang-format, each on all that is ours."""

import subprocess
from pathlib import Path

import pytest

from grader import KIT
from tests.kit.sizes import C, source_files
from tests.tools import require_tool

COMMANDS = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy", "--config-file", "pyproject.toml"],
    "layers": ["lint-imports"],
}


def run(command: list[str]) -> None:
    require_tool(command[0], "install the extra dev: make test does")
    result = subprocess.run(command, cwd=KIT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_python(name: str) -> None:
    run(COMMANDS[name])


def test_cuda_and_cpp_formatting() -> None:
    run(["clang-format", "--dry-run", "-Werror", *source_files(*C)])


def test_makefile_is_gnu_make_3_81() -> None:
    """No function, operator or directive that came after GNU make 3.81 (macOS ships that version)."""
    newer = ("$(file ", "$(intcmp", "$(let ", "!=", "undefine ", "::=", ".ONESHELL", "$(guile")
    for makefile in ("Makefile", "maintainer.mk"):
        text = Path(KIT / makefile).read_text()
        assert [word for word in newer if word in text] == []
