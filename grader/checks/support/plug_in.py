"""Runs a submission's kernel inside the forward pass of the stored model."""

from collections.abc import Callable
from typing import Any

from grader.checking.api import expect_rows
from grader.oracle.llama import Replaced
from grader.oracle.references import ReferenceModel


def expect_in_model(tiny: ReferenceModel, longest: int = 400, **operations: Callable[..., Any]) -> None:
    """Raise Failure unless the logits are right when these operations of every layer run as given, others in NumPy.

    Prompts of at most `longest` tokens are run.
    """
    for reference in tiny.references:
        if len(reference.ids) <= longest:
            logits = tiny.oracle.forward(reference.ids, Replaced(**operations)).logits
            expect_rows(logits, reference.float32.logits, reference.bf16.logits)
