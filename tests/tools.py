"""What a test does when a tool that it needs is missing: skip and say so, or fail under REQUIRE_TOOLS=1."""

import os
import shutil

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
