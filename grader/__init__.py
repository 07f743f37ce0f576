"""PagedLab's autograder: runs a submission's CUDA kernels and engine, stage by stage, against references."""

from pathlib import Path

KIT = Path(__file__).resolve().parent.parent
"""The kit's root folder: everything the grader reads lies below it."""

VERSION = (KIT / "VERSION").read_text(encoding="utf-8").strip()


class UsageError(Exception):
    """What was asked for cannot be done; the message says why and what to do. Exit code 2."""
