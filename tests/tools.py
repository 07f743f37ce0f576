"""What tests need of the machine: tools, without which they skip and say so, or fail under REQUIRE_TOOLS=1; Ctrl-C."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NOT_RUN = "NOT RUN: "


def require_tool(command: str, install: str) -> str:
    """Path of a command on PATH; without it the test is skipped, and CI (REQUIRE_TOOLS=1) fails."""
    path = shutil.which(command)
    if path is None:
        not_run(command, install)
    return str(path)


def not_run(name: str, install: str) -> None:
    """End the running test as not run: `name` is what is missing, `install` what to do."""
    message = f"{NOT_RUN}{name}, {install}"
    if os.environ.get("REQUIRE_TOOLS") == "1":
        pytest.fail(message)
    pytest.skip(message)


@contextmanager
def ctrl_c_enabled() -> Iterator[None]:
    """Let SIGINT interrupt this process and what it starts meanwhile.

    A shell ignores SIGINT for the jobs that a script runs in the background, and all processes below inherit that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
