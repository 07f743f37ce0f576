"""Bring a newer release into a student's folder: all but `starter/`, where their work is, and the new stubs there."""

import argparse
import re
import shutil
import subprocess
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from grader import KIT
from grader.release.record import (
    GENERATED,
    RECORD,
    ReleaseError,
    generated_hashes,
    read_record,
    sha256,
    version_key,
    write,
)

LARGEST = 256 * 2**20
MAINTAINERS = "For maintainers:"
"""Begins a paragraph of the changelog that is not shown to students."""


def update(source: Path, home: Path = KIT) -> list[str]:
    """Take the release zip `source` into the student's kit at `home`; return a line per thing done.

    Everything is checked before the first file changes. Raises ReleaseError and changes nothing when `source` is no
    release, is older than what is here, or the student's git tree has uncommitted changes.
    """
    if not (home / RECORD).exists():
        raise ReleaseError("this is not a student release (no release.json): in the kit's repository, use git pull.")
    new = read_release(source)
    old = read_record((home / RECORD).read_bytes())
    new_record = read_record(new[RECORD])
    if version_key(new_record["version"]) < version_key(old["version"]):
        raise ReleaseError(f"{source.name} is version {new_record['version']}, older than {old['version']} here.")
    changed = changed_stubs(home)
    done = [protect_work(home, old["version"])]
    stubs, conflicts = update_starter(home, new)
    done += stubs
    done += [line for name, line in moved_parts(new, old["version"]) if name in changed]
    for name in old["files"].keys() - new.keys():
        if not name.startswith("starter/"):
            (home / name).unlink(missing_ok=True)
    for name, content in new.items():
        if not name.startswith("starter/"):
            write(home / name, content)
    done.append(f"The kit is now version {new_record['version']} (it was {old['version']}).")
    return [*done, *whats_new(new, old["version"])] if conflicts else done


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


def update_starter(home: Path, new: dict[str, bytes]) -> tuple[list[str], bool]:
    """Add missing stubs; a stub that changed replaces an untouched file, else goes beside it as `NAME.new`.

    Returns a line per thing done, and whether any file went beside another.
    """
    before = generated_hashes((home / GENERATED).read_bytes() if (home / GENERATED).exists() else b"")
    after = generated_hashes(new.get(GENERATED, b""))
    done, conflicts = list[str](), False
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
            done.append(f"{name}: its stub changed; the new one is {path.name}.new beside yours.")
            conflicts = True
    if GENERATED in new:
        write(home / GENERATED, new[GENERATED])
    return done, conflicts


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
    for _, text in newer_sections(new, version):
        for name, sentence in re.findall(r"^- `(engine/\S+)`: (.+(?:\n  .+)*)", text, re.MULTILINE):
            found.append((name, f"starter/{name}: {' '.join(sentence.split())}"))
    return found


def whats_new(new: dict[str, bytes], version: object) -> list[str]:
    """What the changelog says to students of each release after `version`."""
    lines = []
    for title, text in newer_sections(new, version):
        paragraphs = [paragraph for paragraph in text.strip().split("\n\n") if not paragraph.startswith(MAINTAINERS)]
        lines += ["", f"New in {title}:", "", "\n\n".join(paragraphs)]
    return lines


def newer_sections(new: dict[str, bytes], version: object) -> list[tuple[str, str]]:
    """The sections (version, text) of a release's changelog on the releases after `version`, newest first."""
    sections = re.split(r"^## ", new.get("CHANGELOG.md", b"").decode(), flags=re.MULTILINE)[1:]
    parts = [section.partition("\n") for section in sections]
    return [
        (title, text)
        for title, _, text in parts
        if re.fullmatch(r"\d+\.\d+\.\d+", title) and version_key(title) > version_key(version)
    ]


def run_update(arguments: argparse.Namespace) -> int:
    """`python -m grader update ZIP`."""
    print("\n".join(update(Path(arguments.source))))
    return 0
