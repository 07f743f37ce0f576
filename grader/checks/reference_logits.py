"""Judges the logits of a prompt against its references, of which there may be the last rows alone."""

from typing import Any

from grader.checking.api import expect_rows, require
from grader.compare import brackets
from grader.oracle.model import Reference


def expect_logits(logits: Any, prompt: Reference) -> None:
    """Raise Failure unless `logits`, [tokens, vocabulary], are right in the rows that have a reference."""
    if prompt.last:
        wanted = (len(prompt.ids), prompt.float32.logits.shape[1])
        found = getattr(logits, "shape", ())
        require(
            found == wanted, f"logits has shape {brackets(found)}; it must be {brackets(wanted)}.", "INCORRECT_SHAPE"
        )
        logits = logits[prompt.rows]
    expect_rows(logits, prompt.float32.logits, prompt.bf16.logits)
