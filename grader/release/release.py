"""Make the student release, and bring a newer one into a student's folder.

`release` writes `dist/pagedlab-VERSION.zip` from the files that git tracks: what students get and nothing of
`solutions/`, the kit's self-tests or the maintainers' commands. `update` runs on the student's side: it replaces
everything but `starter/`, where the student's work is, and adds what is new there.

A release carries `release.json`: {"version", "files": {path: sha256}}, so that the next update knows which files are
the kit's to replace or remove.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from grader import KIT, VERSION, UsageError

RECORD = "release.json"
GENERATED = "starter/.generated.json"
"""Written by `starter.py`: the sha256 of every starter file as it was generated."""

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
LARGEST = 256 * 2**20


class ReleaseError(UsageError):
    """A release can't be made or taken; the message says why and what to do."""


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


def update(source: Path, home: Path = KIT) -> list[str]:
    """Take the release zip `source` into the student's kit at `home`; return a line per thing done.

    Everything is checked before the first file changes. Raises ReleaseError and changes nothing when `source` is no
    release, is older than what is here, or the student's git tree has uncommitted changes.
    """
    if not (home / RECORD).exists():
        raise ReleaseError("this is no student release (no release.json): in the kit's own repository, use git pull.")
    new = read_release(source)
    old = read_record((home / RECORD).read_bytes())
    new_record = read_record(new[RECORD])
    if version_key(new_record["version"]) < version_key(old["version"]):
        raise ReleaseError(f"{source.name} is version {new_record['version']}, older than {old['version']} here.")
    changed = changed_stubs(home)
    done = [protect_work(home, old["version"])]
    done += update_starter(home, new)
    done += [line for name, line in moved_parts(new, old["version"]) if name in changed]
    for name in old["files"].keys() - new.keys():
        if not name.startswith("starter/"):
            (home / name).unlink(missing_ok=True)
    for name, content in new.items():
        if not name.startswith("starter/"):
            write(home / name, content)
    return [*done, f"The kit is now version {new_record['version']} (it was {old['version']})."]


def read_release(source: Path) -> dict[str, bytes]:
    """Files of a release zip by their path in the kit. Raises ReleaseError when it is none, or damaged."""
    if not source.is_file():
        raise ReleaseError(f"there is no file {source}: name the zip, as in make update FROM=pagedlab-1.0.0.zip.")
    try:
        with zipfile.ZipFile(source) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if sum(member.file_size for member in members) > LARGEST:
                raise ReleaseError(f"{source.name} unpacks to over {LARGEST >> 20} MiB: it is not a PagedLab release.")
            files = {kit_path(member.filename, source): archive.read(member) for member in members}
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError):  # also encrypted, or packed in another way
        raise ReleaseError(f"{source.name} is not a readable zip file: download it again.") from None
    if RECORD not in files:
        raise ReleaseError(f"{source.name} holds no {RECORD}: it is not a PagedLab release.")
    for name, expected in read_record(files[RECORD])["files"].items():
        if name not in files or sha256(files[name]) != expected:
            raise ReleaseError(f"{source.name} is damaged at {name}: download it again.")
    return files


def kit_path(member: str, source: Path) -> str:
    """Path below the zip's one top folder; a path that would leave the kit's folder is refused."""
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or len(path.parts) < 2:
        raise ReleaseError(f"{source.name} holds the path {member!r}, which no release has: it is not used.")
    return str(PurePosixPath(*path.parts[1:]))


def read_record(content: bytes) -> dict[str, dict[str, str]]:
    try:
        record = json.loads(content)
        version_key(record["version"])
        dict(record["files"])
    except (ValueError, KeyError, TypeError):
        raise ReleaseError(f"{RECORD} is damaged: unpack the release again and copy it over.") from None
    return record


def version_key(version: object) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+\.\d+\.\d+", str(version)):
        raise ValueError(f"{version!r} is not a version like 1.2.0")
    return tuple(int(part) for part in str(version).split("."))


def protect_work(home: Path, version: object) -> str:
    """In git, insist that all is committed; outside it, copy `starter/` aside. Returns what was done."""
    if shutil.which("git"):
        status = subprocess.run(["git", "status", "--porcelain"], cwd=home, capture_output=True, text=True)
        if status.returncode == 0 and not status.stdout.strip():
            return "Your work is safe in git."
        if status.returncode == 0:
            raise ReleaseError("there are uncommitted changes here: commit them first, so that nothing can be lost.")
    copy = home / f"starter.before-{version}"
    number = 2
    while copy.exists():
        copy = home / f"starter.before-{version}-{number}"
        number += 1
    shutil.copytree(home / "starter", copy)
    return f"Copied starter/ to {copy.name}/."


def update_starter(home: Path, new: dict[str, bytes]) -> list[str]:
    """Add missing stubs; a stub that changed replaces an untouched file, else goes beside it as `NAME.new`."""
    before = generated_hashes((home / GENERATED).read_bytes() if (home / GENERATED).exists() else b"")
    after = generated_hashes(new.get(GENERATED, b""))
    done = []
    for name, content in sorted(new.items()):
        if not name.startswith("starter/") or name == GENERATED:
            continue
        path, key = home / name, name.removeprefix("starter/")
        if not path.exists():
            write(path, content)
            done.append(f"Added {name}.")
        elif before.get(key) == after.get(key) or path.read_bytes() == content:
            continue
        elif sha256(path.read_bytes()) == before.get(key):
            write(path, content)
            done.append(f"Replaced {name}, which you had not changed.")
        else:
            write(path.with_name(path.name + ".new"), content)
            done.append(f"{name}: its stub changed; the new one is {path.name}.new beside yours. {reason(new)}")
    if GENERATED in new:
        write(home / GENERATED, new[GENERATED])
    return done


def changed_stubs(home: Path) -> set[str]:
    """The files of the starter that are there and not as generated, by their path below `starter/`."""
    before = generated_hashes((home / GENERATED).read_bytes() if (home / GENERATED).exists() else b"")
    files = {name: home / "starter" / name for name in before}
    return {name for name, path in files.items() if path.exists() and sha256(path.read_bytes()) != before[name]}


def moved_parts(new: dict[str, bytes], version: object) -> list[tuple[str, str]]:
    """(file below `starter/`, what moved out of it and where to) of all releases after `version`.

    The changelog has them as items "- `engine/model.py`: prefill and decode now belong in …".
    """
    found = []
    for section in changelog(new):
        title, _, text = section.partition("\n")
        if re.fullmatch(r"\d+\.\d+\.\d+", title) and version_key(title) > version_key(version):
            for name, sentence in re.findall(r"^- `(engine/\S+)`: (.+(?:\n  .+)*)", text, re.MULTILINE):
                found.append((name, f"starter/{name}: {' '.join(sentence.split())}"))
    return found


def generated_hashes(content: bytes) -> dict[str, str]:
    """Hashes of the starter's files as generated, by their path below `starter/`; nothing known gives {}."""
    try:
        return dict(json.loads(content)["files"])
    except (ValueError, KeyError, TypeError):
        return {}


def reason(new: dict[str, bytes]) -> str:
    """First section of the release's changelog: what changed in its version, in one line."""
    return next(("CHANGELOG, " + " ".join(section.split()) for section in changelog(new)), "See CHANGELOG.md.")


def changelog(new: dict[str, bytes]) -> list[str]:
    """The sections of a release's changelog, newest first; each begins with its version."""
    return re.split(r"^## ", new.get("CHANGELOG.md", b"").decode(), flags=re.MULTILINE)[1:]


def write(path: Path, content: bytes) -> None:
    """Write through a temporary file beside the target, so that an interrupted update leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    temporary.replace(path)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def run_release(arguments: argparse.Namespace) -> int:
    """`python -m grader release [--into FOLDER]`."""
    path = make_release(Path(arguments.into))
    print(f"Wrote {path} ({path.stat().st_size / 2**20:.1f} MiB).")
    return 0


def run_update(arguments: argparse.Namespace) -> int:
    """`python -m grader update ZIP`."""
    print("\n".join(update(Path(arguments.source))))
    return 0
