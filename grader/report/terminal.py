"""What a student sees: progress while the checks run, then the stage table and what to do about each failure."""

from collections.abc import Mapping
from typing import Any, TextIO

from grader.report.results import Plan, Record


class Terminal:
    """Shows one grading on a stream; `plain` (no colour, no moving parts) is found out when not given."""

    def __init__(self, stream: TextIO | None = None, *, plain: bool | None = None, width: int | None = None) -> None:
        raise NotImplementedError

    def start(self, plan: Plan) -> None:
        """Begin: the stages and checks that will run."""

    def check_started(self, check_id: str, title: str = "") -> None:
        """A check begins."""

    def check_finished(self, record: Record) -> None:
        """A check has its verdict."""

    def finish(self, results: Mapping[str, Any]) -> None:
        """The end: the table, the failures, what to do next."""
