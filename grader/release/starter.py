"""Makes starter/ from solutions/, file by file as `stubbing` does. Maintainers only."""

import argparse
import json
from pathlib import Path

from grader import KIT
from grader.commands import Subparsers
from grader.release.record import GENERATED, generated_hashes, sha256, write
from grader.release.stubbing import has_task, stub_text


def generate(solutions: Path = KIT / "solutions") -> dict[str, bytes]:
    """The files of the starter by their path below starter/: all that have a task, and __init__.py.

    Raises StarterError.
    """
    paths = [path for path in sorted(solutions.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    files = {
        path.relative_to(solutions).as_posix(): stub_text(path.read_text(encoding="utf-8"), path.name) for path in paths
    }
    return {name: text.encode() for name, text in files.items() if has_task(text) or name.endswith("__init__.py")}


def write_starter(files: dict[str, bytes], starter: Path = KIT / "starter") -> list[str]:
    """Bring starter/ up to date; return a line per change. A file that differs from what was last generated is kept."""
    record = starter / GENERATED
    before = generated_hashes(record.read_bytes() if record.exists() else b"")
    done = []
    for name in sorted(before.keys() | files.keys()):
        path, content = starter / name, files.get(name)
        current = path.read_bytes() if path.exists() else None
        if current == content:
            continue
        if current is not None and sha256(current) != before.get(name):
            done.append(f"Kept {name}: it was changed by hand. Delete it to have it generated.")
        elif content is None:
            path.unlink()
            done.append(f"Removed {name}: it is no longer in solutions/.")
        else:
            write(path, content)
            done.append(f"Wrote {name}.")
    write(
        record, (json.dumps({"files": {name: sha256(files[name]) for name in sorted(files)}}, indent=1) + "\n").encode()
    )
    return done


def stale(files: dict[str, bytes], starter: Path = KIT / "starter") -> list[str]:
    """Names of what is missing in starter/, differs from `files`, or is there without being generated."""
    present = {path.relative_to(starter).as_posix() for path in starter.rglob("*") if path.is_file()}
    present = {name for name in present if "__pycache__" not in name} - {GENERATED}
    contents = {name: (starter / name).read_bytes() for name in present}
    return sorted(name for name in contents | files if contents.get(name) != files.get(name))


def add_starter(commands: Subparsers) -> None:
    parser = commands.add_parser("starter", help="generate starter/ from solutions/")
    parser.set_defaults(run=run_starter)
    parser.add_argument("--check", action="store_true", help="only say what differs")


def run_starter(arguments: argparse.Namespace) -> int:
    """`python -m grader starter [--check]`: exit code 0, or 1 when --check finds a difference."""
    files = generate()
    if arguments.check:
        names = stale(files)
        print("\n".join(f"starter/{name} is not what solutions/ gives; run make starter." for name in names))
        return 1 if names else 0
    print("\n".join(write_starter(files) or ["starter/ is up to date."]))
    return 0
