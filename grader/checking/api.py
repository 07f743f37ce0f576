"""What a check file imports: the markers of checks and properties, the kinds of argument, and how to judge results.

A check draws its inputs, makes calls through the fixture `worker` (or `emulator`), and judges what comes back:

    @check("s03.1")
    def widths(worker, rng):
        \"\"\"rmsnorm_tree is right at widths 1, 33 and 1000.\"\"\"
        …
        expect(worker.launch("rmsnorm_tree", Out((3, width)), x, weight, 1e-5), oracle.rmsnorm(x, weight, 1e-5))

Fixtures: `worker` runs on the graded device, `emulator` always on the emulator, `rng` is a NumPy generator seeded by
the run and the check, `tiny` is the stored model with its prompts and references, `shared_folder` is an empty folder
whose files the submission may read, `expect_band(workload, part)` holds the time of a workload
(grader/throughput/workloads.py) on a GPU against the kit's engine.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from given.contracts import BF16

from grader.checking.functions import title
from grader.checking.properties import property_check
from grader.failure import Failure
from grader.judge.compare import Expected, expect, expect_rows
from grader.observe.counters import Counters
from grader.observe.device_activity import DeviceActivity, GemmCall, KernelCount
from grader.worker.arguments import Handle, InOut, OnDevice, Out, Sampling, Sparse
from grader.worker.client import Worker
from grader.worker.student_errors import StudentError

__all__ = [
    "BF16",
    "Band",
    "Counters",
    "DeviceActivity",
    "Expected",
    "Failure",
    "GemmCall",
    "Handle",
    "InOut",
    "KernelCount",
    "OnDevice",
    "Out",
    "Sampling",
    "Sparse",
    "StudentError",
    "Worker",
    "check",
    "expect",
    "expect_error",
    "expect_rows",
    "hinting",
    "property_check",
    "require",
]

Band = Callable[[str, float], None]
"""The fixture `expect_band`."""

Function = TypeVar("Function", bound=Callable[..., None])


def check(check_id: str) -> Callable[[Function], Function]:
    """Mark a function as the check of this id in the manifest; the first line of its docstring is the title."""

    def mark(function: Function) -> Function:
        if not title(function):
            raise ValueError(f"check {check_id} has no docstring; its first line is the title that students read")
        function.check_id = check_id  # type: ignore[attr-defined]
        return function

    return mark


def require(condition: bool, message: str, verdict: str = "INCORRECT_VALUE", **evidence: Any) -> None:
    """Raise Failure with this verdict, message and evidence unless the condition holds.

    What a submission returned may be an array, and so may a comparison with it: that is no condition that holds.
    """
    if not (isinstance(condition, bool | np.bool_) and condition):
        raise Failure(verdict, message, evidence)


@contextlib.contextmanager
def hinting(hint: str) -> Iterator[None]:
    """Give what fails in a `with` block this hint: for a place where only one cause is left."""
    try:
        yield
    except Failure as failure:
        failure.evidence["hint"] = hint
        raise


def expect_error(call: Callable[[], Any], error: str, *mentions: str) -> None:
    """Raise Failure unless `call` makes the student's code raise `error`, or a subclass, that has one of `mentions`."""
    try:
        call()
    except StudentError as raised:
        if error not in raised.type_names:
            raise
        if mentions and not any(name in raised.text for name in mentions):
            names = " or ".join(map(repr, mentions))
            message = f"{error} must name {names}; its text is: {raised.text or '(empty)'}"
            raise Failure("INCORRECT_VALUE", message, raised.evidence) from None
        return
    raise Failure("INCORRECT_VALUE", f"The call returned; it must raise {error}.")
