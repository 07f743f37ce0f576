"""The record of a release, and of the starter as it was generated: which bytes each file had.

A release carries `release.json`: {"version", "files": {path: sha256}}, so that the next update knows which files are
the kit's to replace or remove.
"""

import hashlib
import json
import re
from pathlib import Path

from grader import UsageError

RECORD = "release.json"
GENERATED = ".generated.json"
"""In starter/: {"files": {path below starter/: sha256 of what was last generated}}."""


class ReleaseError(UsageError):
    """A release can't be made or taken; the message says why and what to do."""


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


def generated_hashes(content: bytes) -> dict[str, str]:
    """Hashes of the starter's files as generated, by their path below `starter/`; nothing known gives {}."""
    try:
        return dict(json.loads(content)["files"])
    except (ValueError, KeyError, TypeError):
        return {}


def write(path: Path, content: bytes) -> None:
    """Write through a temporary file beside the target, so that an interrupted update leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    temporary.replace(path)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
