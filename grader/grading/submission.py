"""Takes in a submission: copies the files that the manifest lists into a private folder, and nothing else."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

MAX_FILE = 1 << 20
MAX_FILES = 200


class MalformedSubmission(Exception):
    """The submission cannot be graded at all; the text says why and what to do."""


def engine_folder(submission: Path) -> Path:
    """The folder `engine` of a submission, which may also be given itself."""
    if not submission.is_dir():
        raise MalformedSubmission(f"There is no folder {submission}; name the folder that holds engine/.")
    if (submission / "engine").is_dir():
        return submission / "engine"
    if submission.resolve().name == "engine" or (submission / "kernels").is_dir():
        return submission
    raise MalformedSubmission(f"{submission} has no folder engine/; name the folder that holds it (as starter/ does).")


def take_in(submission: Path, patterns: Iterable[str], target: Path) -> None:
    """Copy the files that match the manifest's patterns to `target`; a file that is missing is left to its checks.

    Raises MalformedSubmission for a symbolic link, for what is no plain file, and above 1 MiB a file or 200 files.
    """
    source = engine_folder(submission)
    if source.is_symlink() or (source / "kernels").is_symlink():
        raise MalformedSubmission(f"{source} or its kernels/ is a symbolic link; hand in the folder itself.")
    names = sorted({str(path.relative_to(source)) for pattern in patterns for path in source.glob(pattern)})
    if len(names) > MAX_FILES:
        raise MalformedSubmission(f"The submission has {len(names)} source files; at most {MAX_FILES} are taken.")
    for name in names:
        content = _read(source / name, name)
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    target.mkdir(parents=True, exist_ok=True)


def _read(path: Path, name: str) -> bytes:
    """The content of a plain file of bounded size."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        reason = "is a symbolic link" if path.is_symlink() else f"cannot be read ({error.strerror})"
        raise MalformedSubmission(f"{name} {reason}; hand in plain files.") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise MalformedSubmission(f"{name} is no plain file.")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE:
        raise MalformedSubmission(f"{name} is larger than {MAX_FILE >> 20} MiB; source files are smaller.")
    return content
