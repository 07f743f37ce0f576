"""What a check file imports: the markers of checks and properties, the kinds of argument, and how to judge results.

A check draws its inputs, makes calls through the fixture `worker` (or `emulator`), and judges what comes back:

    @check("s03.1")
    def widths(worker, rng):
        \"\"\"rmsnorm_tree is right at widths 1, 33 and 1000.\"\"\"
        …
        expect(worker.launch("rmsnorm_tree", Out((3, width)), x, weight, 1e-5), oracle.rmsnorm(x, weight, 1e-5))

Fixtures: `worker` runs on the graded device, `emulator` always on the emulator, `rng` is a NumPy generator seeded by
the run and the check, `tiny` is the stored model with its prompts and references, `shared_folder` is an empty folder
whose files the submission may read, `device_kind` is "cpu" or "gpu", `expect_band(workload, part)` holds the time of a
workload (grader/throughput/workloads.py) on a GPU against the kit's engine.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from grader.checking.properties import property_check
from grader.failure import Failure
from grader.judge.compare import Expected, expect, expect_rows
from grader.observe.counters import Counters
from grader.observe.device_activity import DeviceActivity, GemmCall, KernelCount
from grader.worker.arguments import BF16, Handle, InOut, OnDevice, Out, Sampling, Sparse
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
    "as_sentence",
    "check",
    "expect",
    "expect_error",
    "expect_rows",
    "expect_success",
    "property_check",
    "require",
]

Band = Callable[[str, float], None]
"""The fixture `expect_band`."""

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., None])


def check(check_id: str) -> Callable[[Function], Function]:
    """Mark a function as the check of this id in the manifest; the first line of its docstring is the title."""

    def mark(function: Function) -> Function:
        if not (function.__doc__ or "").strip():
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


def expect_error(
    call: Callable[[], Any], error: str, *mentions: str, called: str = "The call", because: str = ""
) -> None:
    """Raise Failure unless `call` makes the student's code raise `error`, or a subclass, that has one of `mentions`.

    A message names the call as `called`, and says `because` of what it must raise.
    """
    due = f"must raise {error}{f': {because}' if because else ''}"
    try:
        call()
    except StudentError as raised:
        if error not in raised.type_names:
            raise _another_error(raised, f"{called} {due}") from None
        if mentions and not any(name in raised.text for name in mentions):
            names = " or ".join(map(repr, mentions))
            message = as_sentence(f"{error} must name {names}; its text is: {raised.text or '(empty)'}")
            raise Failure("INCORRECT_VALUE", message, raised.evidence) from None
        return
    raise Failure("INCORRECT_VALUE", f"{called} returned; it {due}.")


def expect_success(call: Callable[[], T], called: str, because: str) -> T:
    """What the call returns; Failure, which says why it must succeed, where the student's code refuses it."""
    try:
        return call()
    except StudentError as raised:
        raise _another_error(raised, f"{called} must succeed: {because}") from None


def _another_error(raised: StudentError, due: str) -> Failure:
    """The failure for an exception of another class than the right one; what needs no such exception stays."""
    if raised.verdict != "RUNTIME_ERROR" or not raised.message.startswith(raised.type_names[0]):
        return raised
    return Failure(raised.verdict, as_sentence(f"{due}. It raised {raised.message}"), raised.evidence)


def as_sentence(text: str) -> str:
    """The text, which may end with another's words, with a full stop where it ends without one."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
