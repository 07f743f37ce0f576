"""PagedLab's autograder: runs a submission's CUDA kernels and engine, stage by stage, against references."""

import sys
from pathlib import Path

KIT = Path(__file__).resolve().parent.parent
"""The kit's root folder: everything the grader reads lies below it."""

SUBMISSION_PATH = KIT / "grader" / "submission_path"
"""The folder that a submission has on its import path: it holds the package `given` and nothing else."""

sys.path.append(str(SUBMISSION_PATH))

VERSION = (KIT / "VERSION").read_text(encoding="utf-8").strip()


class UsageError(Exception):
    """What was asked for cannot be done; the message says why and what to do. Exit code 2."""
