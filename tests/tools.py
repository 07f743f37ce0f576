"""What tests need of the machine: tools, without which they skip and say so, or fail under REQUIRE_TOOLS=1; signals."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
def interrupts_enabled() -> Iterator[None]:
    """Let SIGINT and SIGHUP end this process and what it starts meanwhile.

    A shell ignores SIGINT for the jobs that a script runs in the background, nohup ignores SIGHUP, and all processes
    below inherit that.
    """
    handlers: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
