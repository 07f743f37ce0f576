"""Submissions that are the solutions with some files replaced: alternatives and attacks."""

import shutil
from pathlib import Path

from grader import KIT


def overlay(folder: Path, target: Path) -> Path:
    """Copy the solutions to `target` and `folder`'s files over them; returns the submission's folder."""
    shutil.copytree(KIT / "solutions", target)
    shutil.copytree(folder, target, dirs_exist_ok=True)
    return target
