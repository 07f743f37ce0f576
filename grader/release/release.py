"""Make the student release: `dist/pagedlab-VERSION.zip` of the files that git tracks. Maintainers only.

It holds what students get, and nothing of `solutions/`, the kit's self-tests or the maintainers' commands.
"""

import argparse
import json
import subprocess
import zipfile
from pathlib import Path

from grader import KIT, VERSION
from grader.commands import Subparsers
from grader.release.record import RECORD, ReleaseError, sha256

RELEASED = (
    "assignments/",
    "starter/",
    "grader/",
    "reference_outputs/",
    "tests/__init__.py",
    "tests/run.py",
    "tests/tools.py",
    "tests/submissions.py",
    *(f"tests/{name}/" for name in ("emulator", "given", "grader", "ipc", "judge", "observe", "worker", "checking")),
    *(f"tests/{name}/" for name in ("traces", "throughput", "grading", "report", "profile", "oracle")),
    "LICENSE",
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
    "VERSION",
    "CHANGELOG.md",
)
WITHHELD = (
    "grader/release/release.py",
    "grader/release/starter.py",
    "grader/release/stubbing.py",
    "grader/throughput/calibrate.py",
    "grader/release/student_readme.md",
    "reference_outputs/train_tiny.py",
    "assignments/figures/draw.py",
    "assignments/figures/drawings/",
)
"""Files and, ending in a slash, folders."""
DATE = (1980, 1, 1, 0, 0, 0)
"""One date for every file of the zip, so that the same commit gives the same bytes."""


def make_release(folder: Path) -> Path:
    """Write `pagedlab-VERSION.zip` into `folder` and return its path. Raises ReleaseError outside a git checkout."""
    files = {name: (KIT / name).read_bytes() for name in tracked_files() if is_released(name)}
    files["README.md"] = (KIT / "grader/release/student_readme.md").read_bytes()
    hashes = {name: sha256(content) for name, content in sorted(files.items())}
    files[RECORD] = (json.dumps({"version": VERSION, "files": hashes}, indent=1) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"pagedlab-{VERSION}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(f"pagedlab-{VERSION}/{name}", DATE), content, zipfile.ZIP_DEFLATED)
    return path


def tracked_files() -> list[str]:
    try:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=KIT, capture_output=True, text=True)
    except FileNotFoundError:
        raise ReleaseError("a release is made from the files that git tracks: install git.") from None
    names = [name for name in listing.stdout.split("\0") if name]
    if listing.returncode or not names:
        raise ReleaseError("a release is made from the files that git tracks: run this in a git checkout of the kit.")
    return [name for name in names if (KIT / name).is_file()]


def is_released(name: str) -> bool:
    return name.startswith(RELEASED) and not name.startswith(WITHHELD)


def add_release(commands: Subparsers) -> None:
    parser = commands.add_parser("release", help="make the student release")
    parser.set_defaults(run=run_release)
    parser.add_argument("--into", default="dist", metavar="FOLDER")


def run_release(arguments: argparse.Namespace) -> int:
    """`python -m grader release [--into FOLDER]`."""
    path = make_release(Path(arguments.into))
    print(f"Wrote {path} ({path.stat().st_size / 2**20:.1f} MiB).")
    return 0
