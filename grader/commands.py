"""What the modules of the commands share: where a command adds itself, numbers among its options, what it says."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from typing import TypeAlias

from grader import VERSION
from grader.text import clean_line

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Takes the parsers of the commands; a command's sets the default `run`, which maps its options to an exit code."""


def read_seed(text: str) -> int:
    if not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{clean_line(text, 40)!r} is no whole number from 0 to 2^63 - 1")
    return int(text)


def read_port(text: str) -> int:
    if not text.isdecimal() or len(text) > 5 or int(text) >= 2**16:
        raise argparse.ArgumentTypeError(f"{clean_line(text, 40)!r} is no port, a whole number from 0 to 65535")
    return int(text)


def read_count(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 6 or int(text) < least:
            raise argparse.ArgumentTypeError(f"{clean_line(text, 40)!r} is no whole number from {least} to 999999")
        return int(text)

    return read


def say(sentence: str, code: int) -> int:
    """Print a sentence on standard error; returns the exit code."""
    print(f"PagedLab: {sentence}", file=sys.stderr)
    return code


def report_fault(text: str) -> int:
    """Write a fault of the grader's own to a file, say so in a sentence; PAGEDLAB_DEBUG=1 shows it too."""
    handle, path = tempfile.mkstemp(prefix="pagedlab-fault-", suffix=".log")
    with open(handle, "w", encoding="utf-8", errors="replace") as file:
        file.write(f"PagedLab {VERSION}\n{text}")
    if os.environ.get("PAGEDLAB_DEBUG") == "1":
        print(text, file=sys.stderr)
    reason = clean_line((text.strip().splitlines() or [""])[-1], 300)
    return say(f"the grader itself failed, which is not your fault: {reason} (send your instructor {path})", 3)
