"""Judges returned arrays: shape, dtype, finiteness, then every value against its allowed error.

The tolerances are those of the contract ("Numerics" in DESIGN.md). What the wrong values look like as a whole is told
by `grader.patterns`. Values are compared in float64; a comparison is written `not (error <= allowed)`, so that a NaN
never passes by accident.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from grader.patterns import Comparison, Mask, Values, describe, describe_rows

LARGEST_MAP = 64
"""Rows and columns of the map of wrong values, at most."""

ROW_FACTOR = 8.0
MEDIAN_FACTOR = 1.5

_SMALLEST_BF16_STEP = -133  # exponent: 2^-126, the smallest normal number, over 2^7
_DIGITS = {np.dtype(ml_dtypes.bfloat16): 4, np.dtype(np.float16): 5, np.dtype(np.float32): 8}


class Failure(Exception):
    """A check failed: the verdict (a name of DESIGN.md), one or two sentences for the student, evidence for reports."""

    def __init__(self, verdict: str, message: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(verdict, message)
        self.verdict = verdict
        self.message = message
        self.evidence = dict(evidence or {})

    def __str__(self) -> str:
        return f"{self.verdict}: {self.message}"


@dataclass(frozen=True)
class Expected:
    """What a call must return: the values (NaN where NaN is right), each one's allowed error (0: exact), the dtype."""

    values: NDArray[Any]
    allowed: ArrayLike
    dtype: DTypeLike


# Tolerances


def ulp_bf16(reference: ArrayLike) -> Values:
    """The distance from each reference value to the next bf16 number away from zero, in float64."""
    values = np.asarray(reference, np.float64)
    _, exponent = np.frexp(values)
    return np.where(values == 0, 2.0**_SMALLEST_BF16_STEP, np.ldexp(1.0, np.maximum(exponent - 8, _SMALLEST_BF16_STEP)))


def bf16_allowed(reference: ArrayLike, terms_sum: ArrayLike, roundings: int = 1) -> Values:
    """One operation stored as bf16: roundings · ulp_bf16(reference) + 2^-18 · Σ|terms| + 2^-100.

    `reference` is the float64 result, `terms_sum` the sum of the absolute values of what is added up for it.
    """
    return roundings * ulp_bf16(reference) + 2.0**-18 * np.asarray(terms_sum, np.float64) + 2.0**-100


def attention_allowed(reference: ArrayLike, value_terms: ArrayLike, score_terms: ArrayLike) -> Values:
    """Attention stored as bf16: the rule of one operation, and room for the scores' and the probabilities' rounding.

    `value_terms` is Σ p|v|, of the output's shape; `score_terms` is max_j Σ|q·k_j| · scale, which broadcasts to it.
    Added are 2^-21 · score_terms · value_terms + 2^-9 · value_terms.
    """
    value_terms = np.asarray(value_terms, np.float64)
    extra = (2.0**-21 * np.asarray(score_terms, np.float64) + 2.0**-9) * value_terms
    return bf16_allowed(reference, value_terms) + extra


def softmax_allowed(reference: ArrayLike) -> Values:
    """Softmax in float32: 2^-15 · reference + 2^-120."""
    return 2.0**-15 * np.asarray(reference, np.float64) + 2.0**-120


def rope_tables_allowed(angle: ArrayLike) -> Values:
    """RoPE tables in float32: 2^-22 · angle + 2^-22, with the angle in radians."""
    return 2.0**-22 * np.abs(np.asarray(angle, np.float64)) + 2.0**-22


# Element by element


def expect(got: Any, expected: Expected, name: str = "out") -> None:
    """Raise Failure unless `got` has the shape and dtype and each value is within its allowed error.

    NaN is right only where NaN is wanted; an infinity only where it is wanted, or where the wanted value rounds to it.
    """
    dtype = np.dtype(expected.dtype)
    array = _expect_array(got, np.shape(expected.values), dtype, name)
    comparison = compare(array, expected)
    if comparison.wrong.any():
        raise _wrong_values(comparison, dtype, name)


def worst_ratio(got: NDArray[Any], expected: Expected) -> float:
    """The largest error as a multiple of its allowed error: up to 1 passes. For calibrating tolerances."""
    comparison = compare(got, expected)
    if not comparison.wrong.size:
        return 0.0
    with np.errstate(all="ignore"):
        ratio = np.where(comparison.error == 0, 0.0, comparison.error / comparison.allowed)
    ratio[comparison.wrong & ~(ratio > 1)] = np.inf
    ratio[~comparison.wrong & ~(ratio <= 1)] = 0.0
    return float(ratio.max())


def compare(got: NDArray[Any], expected: Expected) -> Comparison:
    """Both arrays in float64 with the mask of wrong values; shape and dtype must be right already."""
    dtype = np.dtype(expected.dtype)
    want = np.asarray(expected.values)
    allowed = np.broadcast_to(np.asarray(expected.allowed, np.float64), want.shape)
    with np.errstate(all="ignore"):
        exact = got == want.astype(dtype)
        values, wanted = got.astype(np.float64), want.astype(np.float64)
        error = np.abs(values - wanted)
        near = (error <= allowed) & np.isfinite(allowed) & ((error > 0) | exact)
    both_nan = np.isnan(values) & np.isnan(wanted)
    return Comparison(values, wanted, allowed, error, np.asarray(~(near | exact | both_nan)))


def _expect_array(got: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """`got` when it is an array of this shape and dtype; else Failure."""
    wanted = f"a {dtype.name} array of shape {format_shape(shape)}"
    if not isinstance(got, np.ndarray | np.generic):
        kind = "nothing (None)" if got is None else f"a value of type {type(got).__name__}"
        raise Failure("INCORRECT_DTYPE", f"{name} is {kind}; it must be {wanted}.")
    if got.shape != shape:
        hint = "The dimensions are right but in another order." if sorted(got.shape) == sorted(shape) else None
        message = f"{name} has shape {format_shape(got.shape)}; it must be {format_shape(shape)}."
        raise Failure("INCORRECT_SHAPE", message, {"hint": hint} if hint else None)
    if got.dtype != dtype:
        raise Failure("INCORRECT_DTYPE", f"{name} has dtype {got.dtype.name}; it must be {dtype.name}.")
    return np.asarray(got)


def _wrong_values(comparison: Comparison, dtype: np.dtype[Any], name: str) -> Failure:
    """The failure that tells of the wrong values."""
    wrong = comparison.wrong
    count, total = int(wrong.sum()), wrong.size
    not_finite = wrong & ~np.isfinite(comparison.got) & np.isfinite(comparison.want)
    first = _example(comparison, _first_index(wrong), dtype, name)
    worst = _example(comparison, _worst_index(comparison, not_finite), dtype, name)
    evidence = {"wrong": count, "total": total, "first": first, "worst": worst, "map": wrong_map(wrong)}
    hint = describe(comparison)
    if hint:
        evidence["hint"] = hint
    verdict = "NOT_FINITE" if not_finite.any() else "INCORRECT_VALUE"
    how = _how_many(count, total, int(not_finite.sum()))
    where = f"First: {name}{format_index(first['index'])} = {first['got']}, want {first['want']}"
    return Failure(verdict, f"{how} {where} ({_allowance(first['allowed'])}).", evidence)


def _how_many(count: int, total: int, not_finite: int) -> str:
    number = "The only value is" if total == 1 else f"{count:,} of {total:,} values {'is' if count == 1 else 'are'}"
    if not_finite == 0:
        return f"{number} wrong."
    if not_finite == count:
        return f"{number} NaN or infinite."
    return f"{number} wrong, {not_finite:,} of them NaN or infinite."


def _allowance(allowed: str) -> str:
    return "which must be exact" if allowed == "0" else f"allowed error {allowed}"


def _first_index(mask: Mask) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))


def _worst_index(comparison: Comparison, not_finite: Mask) -> tuple[int, ...]:
    """Where a value is not finite, the first such; else where the error exceeds its allowance by the most."""
    if not_finite.any():
        return _first_index(not_finite)
    excess = np.where(comparison.wrong, comparison.error - comparison.allowed, -np.inf)
    excess[np.isnan(excess)] = np.inf
    return tuple(int(i) for i in np.unravel_index(int(excess.argmax()), excess.shape))


def _example(comparison: Comparison, index: tuple[int, ...], dtype: np.dtype[Any], name: str) -> dict[str, Any]:
    got, want = format_pair(float(comparison.got[index]), float(comparison.want[index]), dtype)
    return {
        "name": name,
        "index": list(index),
        "got": got,
        "want": want,
        "allowed": f"{float(comparison.allowed[index]):.2g}",
    }


def wrong_map(wrong: Mask) -> dict[str, Any]:
    """Counts of wrong values in ≤ 64 × 64 cells; the array is seen as [product of its leading dimensions, last one]."""
    table = wrong.reshape(1, -1) if wrong.ndim < 2 else wrong.reshape(-1, wrong.shape[-1])
    rows, columns = table.shape
    cells = (min(rows, LARGEST_MAP), min(columns, LARGEST_MAP))
    counts = np.zeros(cells, np.int64)
    row, column = np.nonzero(table)
    np.add.at(counts, (row * cells[0] // rows, column * cells[1] // columns), 1)
    return {"rows": rows, "columns": columns, "counts": counts.tolist()}


# Row by row: logits and hidden states


def row_errors(got: ArrayLike, reference: ArrayLike) -> Values:
    """The rms over each row of got − reference; both [rows, columns]."""
    with np.errstate(all="ignore"):
        difference = np.asarray(got, np.float64) - np.asarray(reference, np.float64)
        return np.sqrt(np.mean(difference**2, axis=1))


def row_ratios(got: ArrayLike, reference: ArrayLike, bf16_reference: ArrayLike) -> tuple[float, float]:
    """(worst row error / its limit, median row error / its limit) of `expect_rows`: up to 1 passes. For calibration."""
    errors, allowed, largest_median = _row_limits(got, reference, bf16_reference)
    with np.errstate(all="ignore"):
        return float(np.max(errors / allowed)), float(np.median(errors) / largest_median)


def expect_rows(
    got: Any, reference: ArrayLike, bf16_reference: ArrayLike, name: str = "logits", dtype: DTypeLike = np.float32
) -> None:
    """Judge logits or hidden states, [rows, columns], one row per token, by the rms error of each row.

    A row's error is ≤ 8 × max(that row's, the prompt's median) error of the bf16 reference, and the median of the row
    errors is ≤ 1.5 × the median of the bf16 reference's; all against the float32 reference. Raises Failure.
    """
    array = _expect_array(got, np.shape(reference), np.dtype(dtype), name).astype(np.float64)
    if not array.size:
        return
    errors, allowed, largest_median = _row_limits(array, reference, bf16_reference)
    wrong = np.asarray(~(errors <= allowed))
    if wrong.any():
        raise _wrong_rows(array, errors, allowed, wrong, name)
    median = float(np.median(errors))
    if not (median <= largest_median):
        message = (
            f"No row of {name} is far off, but they are less precise than bf16 arithmetic needs to be: "
            f"the median rms error of the rows is {median:.3g} (allowed {largest_median:.3g})."
        )
        raise Failure(
            "INCORRECT_VALUE", message, {"hint": "Accumulate in float32 and round to bf16 once per operation."}
        )


def _row_limits(got: ArrayLike, reference: ArrayLike, bf16_reference: ArrayLike) -> tuple[Values, Values, float]:
    """Each row's error, each row's allowed error, and the largest allowed median."""
    errors, bf16_errors = row_errors(got, reference), row_errors(bf16_reference, reference)
    median = float(np.median(bf16_errors))
    return errors, ROW_FACTOR * np.maximum(bf16_errors, median), MEDIAN_FACTOR * median


def _wrong_rows(got: Values, errors: Values, allowed: Values, wrong: Mask, name: str) -> Failure:
    count, total = int(wrong.sum()), wrong.size
    first = int(wrong.argmax())
    worst = int(np.where(np.isfinite(errors), errors - allowed, np.inf).argmax())
    not_finite = not np.isfinite(got).all()
    examples = {
        key: {"name": name, "index": [row], "error": format_value(float(errors[row])), "allowed": f"{allowed[row]:.2g}"}
        for key, row in (("first", first), ("worst", worst))
    }
    how = f"{count:,} of {total:,} rows are" if total > 1 else "The only row is"
    if total > 1 and count == 1:
        how = f"1 of {total:,} rows is"
    message = (
        f"{how} wrong{' (NaN or infinite values)' if not_finite else ''}. First: {name}[{first}], whose rms error is "
        f"{examples['first']['error']} (allowed {examples['first']['allowed']})."
    )
    evidence: dict[str, Any] = {"wrong": count, "total": total, **examples, "map": wrong_map(wrong.reshape(-1, 1))}
    hint = describe_rows(wrong)
    if hint:
        evidence["hint"] = hint
    return Failure("NOT_FINITE" if not_finite else "INCORRECT_VALUE", message, evidence)


# Text


def format_pair(got: float, want: float, dtype: np.dtype[Any]) -> tuple[str, str]:
    """Both values as text, with enough digits that different numbers look different."""
    if dtype.kind in "iub" and np.isfinite([got, want]).all():
        return str(int(got)), str(int(want))
    for digits in range(_DIGITS.get(dtype, 12), 18):
        texts = format_value(got, digits), format_value(want, digits)
        if texts[0] != texts[1] or got == want:
            break
    return texts


def format_value(value: float, digits: int = 4) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    return f"{value:.{digits}g}"


def format_shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(str(length) for length in shape)}]"


def format_index(index: list[int]) -> str:
    return f"[{', '.join(str(i) for i in index)}]" if index else ""
