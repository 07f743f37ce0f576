"""How a check ends: the names of the verdicts, and the exception that carries one to the student."""

from typing import Any

VERDICTS = (
    "PASSED", "NOT_IMPLEMENTED", "COMPILE_ERROR", "INCORRECT_SHAPE", "INCORRECT_DTYPE", "INCORRECT_VALUE", "NOT_FINITE",
    "INPUT_MODIFIED", "OUT_OF_BOUNDS", "MISALIGNED_ACCESS", "DATA_RACE", "UNINITIALISED_READ", "BARRIER_DIVERGENCE",
    "OUT_OF_MEMORY", "RUNTIME_ERROR", "CRASHED", "TIMEOUT", "TOO_SLOW", "SKIPPED", "NOT_RUN",
)  # fmt: skip
NO_ANSWER = ("NOT_IMPLEMENTED", "SKIPPED", "NOT_RUN")
"""Verdicts that say nothing is wrong: the check was not tried."""


class Failure(Exception):
    """A check failed: the verdict (one of VERDICTS), one or two sentences for the student, evidence for reports."""

    def __init__(self, verdict: str, message: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(verdict, message)
        self.verdict = verdict
        self.message = message
        self.evidence = {key: value for key, value in (evidence or {}).items() if value is not None}

    def __str__(self) -> str:
        return f"{self.verdict}: {self.message}"
