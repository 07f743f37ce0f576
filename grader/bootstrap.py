"""Set up `.venv/` with the pinned packages; the one script that runs on the system's own Python.

Usage: python3 grader/bootstrap.py [EXTRA ...], where an EXTRA is a group of `pyproject.toml`: dev, gpu, model, serve,
reference.

It writes nothing outside the kit's folder, does nothing when all is in place, and names in one sentence what the
machine lacks. Written so that an old Python can still read it and say so.
"""

import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from typing import NoReturn

KIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(KIT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
OLDEST = (3, 11)


def fail(sentence: str) -> NoReturn:
    print("PagedLab: " + sentence, file=sys.stderr)
    raise SystemExit(2)


def main(extras: list) -> None:
    if sys.version_info < OLDEST:
        hand_over_to_newer_python(extras)
    if shutil.which("make") is None:
        fail("make is missing: install it (Debian, Ubuntu: apt install make; macOS: xcode-select --install).")
    if not any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "g++", "clang++")):
        fail(
            "no C++ compiler was found; the emulator compiles your kernels with it: install g++ or clang++ "
            "(Debian, Ubuntu: apt install g++; macOS: xcode-select --install)."
        )
    wanted = read_requirements(extras)
    if already_installed(wanted):
        return
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        fail("Python's venv module is missing: install it (Debian, Ubuntu: apt install python3-venv).")
    install(wanted, extras)


def hand_over_to_newer_python(extras: list) -> None:
    """Run this script again under the newest Python on PATH that is new enough; end here if there is none."""
    for minor in range(19, OLDEST[1] - 1, -1):
        newer = shutil.which(f"python3.{minor}")
        if newer:
            os.execv(newer, [newer, os.path.abspath(__file__), *extras])
    fail(
        f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed and python3 is {sys.version.split()[0]}: "
        "install a newer one (Debian, Ubuntu: apt install python3.11 python3.11-venv; macOS: brew install python)."
    )


def read_requirements(extras: list) -> list:
    """Package names of the core and of the extras; ends the run when an extra is unknown."""
    import tomllib

    with open(os.path.join(KIT, "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)["project"]
    groups = project["optional-dependencies"]
    for extra in extras:
        if extra not in groups:
            fail(f"unknown extra {extra!r}; known are {', '.join(sorted(groups))}.")
    return project["dependencies"] + [name for extra in extras for name in groups[extra]]


def already_installed(wanted: list) -> bool:
    """Whether every wanted package lies in `.venv/` in its pinned version. Needs no network and starts no process."""
    pins = read_pins()
    folders = glob.glob(os.path.join(VENV, "lib", "python3.*", "site-packages"))
    if not folders or not os.path.exists(PYTHON):
        return False
    present = {normalise(name.split("-")[0]): name.split("-")[1] for name in distribution_names(folders[0])}
    return all(present.get(normalise(name), "").split("+")[0] == pins[normalise(name)] for name in wanted)


def distribution_names(folder: str) -> list:
    return [name[: -len(".dist-info")] for name in os.listdir(folder) if name.endswith(".dist-info")]


def read_pins() -> dict:
    with open(os.path.join(KIT, "constraints.txt"), encoding="utf-8") as file:
        lines = [line.strip() for line in file if "==" in line]
    return {normalise(line.split("==")[0]): line.split("==")[1] for line in lines}


def normalise(name: str) -> str:
    """PyPI's spelling of a package name: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def install(wanted: list, extras: list) -> None:
    what = "the kit's packages" + (" and the extras " + ", ".join(extras) if extras else "")
    print(f"PagedLab: installing {what} into .venv/ (once; needs the network) ...", flush=True)
    if not os.path.exists(PYTHON):
        run([sys.executable, "-m", "venv", VENV], "creating .venv/ failed; is the disk full or the folder read-only?")
    command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--constraint", os.path.join(KIT, "constraints.txt"), *wanted]
    run(command, "installing the packages failed; check the network, then run `make setup` again.")
    command = [PYTHON, "-c", "from grader.emulator.compiler.toolchain import runtime_library; runtime_library()"]
    run(command, "the C++ compiler could not build the emulator; its messages stand above.")


def run(command: list, sentence: str) -> None:
    """Run a command, keeping its output for when it fails."""
    result = subprocess.run(command, cwd=KIT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        print(result.stdout[-4000:], file=sys.stderr)
        fail(sentence)


if __name__ == "__main__":
    main(sys.argv[1:])
