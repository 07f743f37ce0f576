"""Judges returned arrays: shape, dtype, finiteness, every value against its allowed error, and what the errors look like."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Array = NDArray[Any]


class Failure(Exception):
    """A check failed: a verdict of DESIGN.md, one or two sentences for the student, and evidence for the reports."""

    def __init__(self, verdict: str, message: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(verdict, message)
        self.verdict = verdict
        self.message = message
        self.evidence = dict(evidence or {})


@dataclass(frozen=True)
class Expected:
    """What a call must return: values (NaN where NaN is right), the allowed error per element (0: exactly), the dtype."""

    values: Array
    allowed: ArrayLike
    dtype: DTypeLike


def expect(got: Any, expected: Expected, what: str = "out") -> None:
    """Raise Failure unless `got` has the shape and dtype and, element by element, is within the allowed error."""
    raise NotImplementedError


def ulp_bf16(reference: ArrayLike) -> Array:
    """The distance between neighbouring bf16 numbers at each reference value (float64)."""
    raise NotImplementedError


def bf16_allowed(reference: ArrayLike, terms_sum: ArrayLike, roundings: int = 1) -> Array:
    """One operation stored as bf16: roundings · ulp_bf16(reference) + 2^-18 · Σ|terms| + 2^-100."""
    raise NotImplementedError


def attention_allowed(reference: ArrayLike, value_terms: ArrayLike, score_terms: ArrayLike) -> Array:
    """Attention: the one-operation rule with Σ p|v| as terms, + 2^-21 · max_j Σ|q·k_j| · scale · Σ p|v| + 2^-9 · Σ p|v|."""
    raise NotImplementedError


def softmax_allowed(reference: ArrayLike) -> Array:
    """Softmax in float32: 2^-15 · reference + 2^-120."""
    raise NotImplementedError


def rope_tables_allowed(angle: ArrayLike) -> Array:
    """RoPE tables in float32: 2^-22 · angle + 2^-22."""
    raise NotImplementedError


def expect_rows(
    got: Any, reference: ArrayLike, bf16_reference: ArrayLike, what: str = "logits", dtype: Any = np.float32
) -> None:
    """Judge logits or hidden states [rows, columns] by each row's rms error against float32 `reference`.

    A row's error is ≤ 8 × max(that row's, the prompt's median) error of the bf16 reference, and the median of the row
    errors is ≤ 1.5 × the median of the bf16 reference's.
    """
    raise NotImplementedError
