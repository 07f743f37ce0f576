"""A fresh machine: what `make setup` says when something is missing, and that nothing needs the network after it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader import KIT
from tests.tools import not_run, require_tool


def path_without(folder: Path, *missing: str) -> str:
    """A PATH that holds links to every command of this machine but the missing ones."""
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for command in Path(directory).glob("*") if Path(directory).is_dir() else ():
            if not command.name.startswith(missing) and not (folder / command.name).exists():
                (folder / command.name).symlink_to(command)
    return str(folder)


def bootstrap(path: str, *extras: str) -> subprocess.CompletedProcess[str]:
    script = str(KIT / "grader/bootstrap.py")
    environment = {"PATH": path, "HOME": os.environ.get("HOME", "/")}
    return subprocess.run([sys.executable, script, *extras], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        (("make", "gmake"), "make is missing: install it"),
        (("g++", "clang++", "c++"), "no C++ compiler was found"),
    ],
)
def test_missing_tool_is_named(tmp_path: Path, missing: tuple[str, ...], sentence: str) -> None:
    result = bootstrap(path_without(tmp_path / "bin", *missing))
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_missing_python_is_named(tmp_path: Path) -> None:
    path = path_without(tmp_path / "bin", "python")
    result = subprocess.run(["make", "setup"], cwd=KIT, env={"PATH": path}, capture_output=True, text=True)
    assert "PagedLab needs Python 3.11 or newer: install it" in result.stderr


def test_old_python_is_named(tmp_path: Path) -> None:
    """The script runs under a Python that calls itself 3.9, with no newer one on PATH."""
    path = path_without(tmp_path / "bin", "python")
    name = str(KIT / "grader/bootstrap.py")
    script = f"import runpy, sys; sys.version_info = (3, 9, 2); sys.argv = [{name!r}]; "
    script += f"runpy.run_path({name!r}, run_name='__main__')"
    result = subprocess.run([sys.executable, "-c", script], env={"PATH": path}, capture_output=True, text=True)
    assert result.returncode == 2
    assert "Python 3.11 or newer is needed" in result.stderr


def test_missing_venv_is_named(tmp_path: Path) -> None:
    kit = copy_of_kit(tmp_path)
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text("import sys\nsys.modules['ensurepip'] = None\n")
    environment = os.environ | {"PYTHONPATH": str(blocked)}
    command = [sys.executable, str(kit / "grader/bootstrap.py")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 2
    assert "venv module is missing: install it" in result.stderr


def copy_of_kit(tmp_path: Path) -> Path:
    kit = tmp_path / "kit"
    (kit / "grader").mkdir(parents=True)
    for name in ("grader/bootstrap.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(KIT / name, kit / name)
    return kit


def test_unknown_extra_is_named() -> None:
    result = bootstrap(os.environ["PATH"], "nonsense")
    assert result.returncode == 2
    assert "unknown extra 'nonsense'; known are dev, gpu, model, reference, serve." in result.stderr


def test_grading_needs_no_network() -> None:
    """`make grade` in a network namespace that has no interface but a dead loopback."""
    unshare = require_tool("unshare", "install util-linux")
    if subprocess.run([unshare, "-rn", "true"], capture_output=True).returncode:
        not_run("unshare", "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)")
    command = [unshare, "-rn", "make", "grade", "SUBMISSION=solutions", "STAGE=5", "DEVICE=auto"]
    result = subprocess.run(command, cwd=KIT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "all public checks passed" in result.stdout
