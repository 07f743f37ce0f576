"""What the emulator found in a kernel, as the failure of a check."""

from collections.abc import Mapping, Sequence
from typing import Any

from grader.failure import Failure

MAX_CHECKED = 16_384
"""Launches whose arrays have at most so many elements are checked for races and the like."""

ORDERS = (0, 1, 7)
"""Seeds of the orders in which threads run: as their numbers ascend, as they descend, at random."""

MAX_KEPT = 8


def failure_of(reports: Sequence[Mapping[str, Any]]) -> Failure | None:
    """The failure for the errors among the emulator's reports (grader/emulator/reports.py); None without any.

    Its evidence begins with the report that the message tells of.
    """
    errors = [report for report in reports if report["is_error"]]
    if not errors:
        return None
    first = errors[0]
    message = f"In {first['kernel']}: {first['message']}"
    if first["count"] > 1:
        message += f" This happened {first['count']:,} times."
    kept = sorted(reports, key=lambda report: not report["is_error"])[:MAX_KEPT]
    return Failure(first["verdict"], message, {"reports": [dict(report) for report in kept]})


def order_failure(op: str) -> Failure:
    """The failure of a kernel whose results are not the same in every order of its threads."""
    message = (
        f"{op} gives other results when its threads run in another order, which a GPU does as it likes. "
        "Look for a value that is used before every thread has had its part in it."
    )
    return Failure("DATA_RACE", message)
