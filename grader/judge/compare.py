"""Judges returned arrays: shape, dtype, finiteness, then every value against its allowed error.

The tolerances follow from the number formats. `grader.judge.patterns` describes what the wrong values look like as a
whole. Values are compared in float64; a comparison is written `not (error <= allowed)`, so that a NaN never passes by
accident.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from given.contracts import BF16
from numpy.typing import ArrayLike, DTypeLike, NDArray

from grader.failure import Failure
from grader.judge.patterns import FEWEST, Comparison, Mask, Values, describe, describe_region

LARGEST_MAP = 64
"""Rows and columns of the map of wrong values, at most."""

SMALLEST_ALLOWED = 2.0**-99
"""What is allowed beside 0 for the sake of the formulas alone is told as exact."""

HEADS_NDIM = 3
"""Arrays of this many dimensions are [tokens, heads, head size]."""

SUSPECTED = "The values are those of a kernel that"
"""How a hint begins that names mistakes."""
MOST_SUSPECTS = 3
MOST = 0.75

ROW_FACTOR = 8.0
MEDIAN_FACTOR = 1.5
MEDIAN_ROWS = 6
"""Of fewer rows no median is judged: among right answers it varies too much."""

_SMALLEST_BF16_STEP = -133  # exponent: 2^-126, the smallest normal number, over 2^7
_DIGITS = {BF16: 4, np.dtype(np.float16): 5, np.dtype(np.float32): 8}


@dataclass(frozen=True)
class Expected:
    """What a call must return: the values (NaN where NaN is right), each one's allowed error (0: exact), the dtype."""

    values: NDArray[Any]
    allowed: ArrayLike
    dtype: DTypeLike
    before: NDArray[Any] | None = None
    """What the array held before the call, when the call changes it in place."""
    suspects: "Callable[[], Iterable[Suspect]]" = tuple
    """Computes them, when the values are wrong."""
    about_nan: str = ""
    """A sentence on where the inputs hold NaN that the call must not read."""


class Suspect(NamedTuple):
    """A mistake that a call may have: the words after "a kernel that", and what the call returns with it."""

    mistake: str
    result: Expected


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


def float32_allowed(reference: ArrayLike, terms_sum: ArrayLike) -> Values:
    """One operation stored as float32, as logits are: ulp_float32(reference) + 2^-18 · Σ|terms| + 2^-100."""
    spacing = np.spacing(np.abs(np.asarray(reference, np.float64)).astype(np.float32)).astype(np.float64)
    return spacing + 2.0**-18 * np.asarray(terms_sum, np.float64) + 2.0**-100


def attention_allowed(reference: ArrayLike, value_terms: ArrayLike, score_terms: ArrayLike) -> Values:
    """Attention stored as bf16: the rule of one operation, and room for the scores' and the probabilities' rounding.

    `value_terms` is Σ p|v|, of the output's shape; `score_terms` is max_j Σ|q·k_j| · scale, which broadcasts to it.
    Added are 2^-21 · score_terms · value_terms + 2^-8 · value_terms: 2^-8 is how far a number moves, at most, when it
    is rounded to bf16, relative to itself; probabilities may be rounded before they are normalised.
    """
    value_terms = np.asarray(value_terms, np.float64)
    extra = (2.0**-21 * np.asarray(score_terms, np.float64) + 2.0**-8) * value_terms
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
        hint = suspected(array, expected) or describe(comparison, expected.about_nan)
        raise _wrong_values(comparison, dtype, name, hint)


def worst_ratio(got: NDArray[Any], expected: Expected) -> float:
    """The largest error as a multiple of its allowed error: up to 1 passes. For calibrating tolerances."""
    comparison = compare(got, expected)
    with np.errstate(all="ignore"):
        ratio = np.asarray(comparison.error / comparison.allowed)
    ratio[np.isnan(ratio) | (comparison.error == np.inf)] = np.inf
    return float(np.where(comparison.wrong | (ratio <= 1), ratio, 0.0).max(initial=0.0))


def compare(got: NDArray[Any], expected: Expected) -> Comparison:
    """Both arrays in float64 with the mask of wrong values; shape and dtype must be right already."""
    dtype = np.dtype(expected.dtype)
    want = np.asarray(expected.values)
    allowed = np.broadcast_to(np.asarray(expected.allowed, np.float64), want.shape)
    with np.errstate(all="ignore"):
        exact = got == want.astype(dtype)
        values, wanted = got.astype(np.float64), want.astype(np.float64)
        error = np.asarray(np.abs(values - wanted))
        near = (error <= allowed) & np.isfinite(allowed) & ((error > 0) | exact)
    both_nan = np.isnan(values) & np.isnan(wanted)
    wrong = np.asarray(~(near | exact | both_nan))
    return Comparison(
        values,
        wanted,
        allowed,
        error,
        wrong,
        _unwritten(got, expected.before),
        expected.before is None,
        got.dtype == np.float32,
    )


def _unwritten(got: NDArray[Any], before: NDArray[Any] | None) -> Mask:
    """Which elements have the bits from before the call: all 1 in an output's floats, `before` where it is given."""
    if before is None and got.dtype.kind in "iub":
        return np.zeros(got.shape, bool)
    bits = got[..., None].copy().view(np.uint8)
    filled = 0xFF if before is None else before.astype(got.dtype)[..., None].copy().view(np.uint8)
    return np.asarray((bits == filled).all(axis=-1))


def _expect_array(got: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """`got` when it is an array of this shape and dtype; else Failure."""
    if not isinstance(got, np.ndarray | np.generic):
        kind = "nothing (None)" if got is None else f"a value of type {getattr(got, 'type_name', type(got).__name__)}"
        wanted = f"a {dtype.name} array of shape {brackets(shape)}"
        raise Failure("INCORRECT_DTYPE", f"{name} is {kind}; it must be {wanted}.")
    if got.shape != shape:
        message = f"{name} has shape {brackets(got.shape)}; it must be {brackets(shape)}."
        reordered = sorted(got.shape) == sorted(shape)
        hint = {"hint": "The dimensions are right but in another order."} if reordered else None
        raise Failure("INCORRECT_SHAPE", message, hint)
    if got.dtype != dtype:
        raise Failure("INCORRECT_DTYPE", f"{name} has dtype {got.dtype.name}; it must be {dtype.name}.")
    return np.asarray(got)


def suspected(got: NDArray[Any], expected: Expected) -> str | None:
    """One sentence on the mistakes with which a kernel returns just these values; None when no suspect fits."""
    right = compare(got, expected)
    if right.wrong.sum() < FEWEST or (right.is_output and right.unwritten[right.wrong].any()):
        return None
    fitting = [mistake for mistake, result in expected.suspects() if _explains(compare(got, result), right)]
    if fitting and right.unwritten.all():
        fitting.insert(0, "writes nothing")
    mistakes = ", or that ".join(list(dict.fromkeys(fitting))[:MOST_SUSPECTS])
    return f"{SUSPECTED} {mistakes}." if fitting else None


def _explains(suspect: Comparison, right: Comparison) -> bool:
    """Whether all values are the suspect's, and most wrong ones are far nearer to them than to the right ones."""
    if suspect.wrong.any():
        return False
    wrong = right.wrong
    both_nan = np.isnan(suspect.got[wrong]) & np.isnan(suspect.want[wrong])
    with np.errstate(all="ignore"):
        nearer = (suspect.error[wrong] <= right.error[wrong] / 4) | (suspect.got[wrong] == suspect.want[wrong])
    return bool((nearer | both_nan).mean() > MOST)


def _wrong_values(comparison: Comparison, dtype: np.dtype[Any], name: str, hint: str | None) -> Failure:
    """The failure that tells of the wrong values; the worst is the one furthest beyond its allowed error."""
    wrong = comparison.wrong
    not_finite = int((wrong & ~np.isfinite(comparison.got) & np.isfinite(comparison.want)).sum())
    excess = np.where(wrong, comparison.error - comparison.allowed, -np.inf)
    excess[np.isnan(excess)] = np.inf
    first = _example(comparison, int(wrong.argmax()), dtype, name)
    worst = _example(comparison, int(excess.argmax()), dtype, name)
    place = f"{name}{brackets(first['index']) if first['index'] else ''}"
    told = f"{place} = {first['got']}, want {first['want']} ({tolerance(first)})"
    message = f"{_how_many(wrong, 'value', not_finite)} First: {told}."
    evidence = {**_counts(wrong), "first": first, "worst": worst, "map": wrong_map(wrong), "hint": hint}
    return Failure("NOT_FINITE" if not_finite else "INCORRECT_VALUE", message, evidence)


def _how_many(wrong: Mask, noun: str, not_finite: int) -> str:
    count = int(wrong.sum())
    if wrong.size == 1:
        return f"The only {noun} is {'NaN or infinite' if not_finite else 'wrong'}."
    number = f"{count:,} of {wrong.size:,} {noun}s {'is' if count == 1 else 'are'}"
    if not_finite in (0, count):
        return f"{number} {'NaN or infinite' if not_finite else 'wrong'}."
    return f"{number} wrong, {not_finite:,} of them NaN or infinite."


def _counts(wrong: Mask) -> dict[str, Any]:
    return {"wrong": int(wrong.sum()), "total": wrong.size}


def _example(comparison: Comparison, flat: int, dtype: np.dtype[Any], name: str) -> dict[str, Any]:
    index = tuple(int(i) for i in np.unravel_index(flat, comparison.wrong.shape))
    got, want = format_pair(float(comparison.got[index]), float(comparison.want[index]), dtype)
    allowed = f"{float(comparison.allowed[index]):.2g}" if comparison.allowed[index] > SMALLEST_ALLOWED else "0"
    return {"name": name, "index": list(index), "got": got, "want": want, "allowed": allowed}


def wrong_map(wrong: Mask) -> dict[str, Any]:
    """Counts of wrong values in ≤ 64 × 64 cells; the array is seen as [product of its leading dimensions, last one].

    One of [tokens, heads, head size] is seen as tokens and heads, `depth` values each.
    """
    depth = wrong.shape[-1] if wrong.ndim == HEADS_NDIM else 1
    table = wrong.sum(axis=-1) if wrong.ndim == HEADS_NDIM else wrong.reshape(-1, wrong.shape[-1] if wrong.ndim else 1)
    rows, columns = table.shape
    cells = (min(rows, LARGEST_MAP), min(columns, LARGEST_MAP))
    counts = np.zeros(cells, np.int64)
    row, column = np.nonzero(table)
    np.add.at(counts, (row * cells[0] // rows, column * cells[1] // columns), table[row, column])
    return {"rows": rows, "columns": columns, "depth": depth, "counts": counts.tolist()}


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
        median = float(np.median(errors) / largest_median) if len(errors) >= MEDIAN_ROWS else 0.0
        return float(np.max(errors / allowed)), median


def expect_rows(
    got: Any, reference: ArrayLike, bf16_reference: ArrayLike, name: str = "logits", dtype: DTypeLike = np.float32
) -> None:
    """Judge logits or hidden states, [rows, columns], one row per token, by the rms error of each row.

    A row's error is ≤ 8 × max(that row's, the prompt's median) error of the bf16 reference, and the median of the row
    errors is, from 6 rows on, ≤ 1.5 × the median of the bf16 reference's; all against the float32 reference. Raises
    Failure.
    """
    array = _expect_array(got, np.shape(reference), np.dtype(dtype), name).astype(np.float64)
    if not array.size:
        return
    errors, allowed, largest_median = _row_limits(array, reference, bf16_reference)
    wrong = np.asarray(~(errors <= allowed))
    if wrong.any():
        raise _wrong_rows(array, errors, allowed, wrong, name)
    median = float(np.median(errors))
    if len(array) >= MEDIAN_ROWS and not (median <= largest_median):
        message = (
            f"No row of {name} is far off, but they are less precise than bf16 arithmetic needs to be: "
            f"the median rms error of the rows is {median:.3g} (allowed {largest_median:.3g})."
        )
        hint = "Accumulate in float32 and round to bf16 once per operation."
        raise Failure("INCORRECT_VALUE", message, {"hint": hint})


def _row_limits(got: ArrayLike, reference: ArrayLike, bf16_reference: ArrayLike) -> tuple[Values, Values, float]:
    """Each row's error, each row's allowed error, and the largest allowed median."""
    errors, bf16_errors = row_errors(got, reference), row_errors(bf16_reference, reference)
    median = float(np.median(bf16_errors))
    return errors, ROW_FACTOR * np.maximum(bf16_errors, median), MEDIAN_FACTOR * median


def _wrong_rows(got: Values, errors: Values, allowed: Values, wrong: Mask, name: str) -> Failure:
    def example(row: int) -> dict[str, Any]:
        error = format_value(float(errors[row]))
        return {"name": name, "index": [row], "error": error, "allowed": f"{allowed[row]:.2g}"}

    not_finite = int((~np.isfinite(got)).any(axis=1).sum())
    first = example(int(wrong.argmax()))
    worst = example(int(np.where(np.isfinite(errors), errors - allowed, np.inf).argmax()))
    message = (
        f"{_how_many(wrong, 'row', not_finite)} First: {name}{brackets(first['index'])}, whose rms error is "
        f"{first['error']} (allowed {first['allowed']})."
    )
    evidence = {**_counts(wrong), "first": first, "worst": worst, "hint": describe_region(wrong, names=("row",))}
    return Failure("NOT_FINITE" if not_finite else "INCORRECT_VALUE", message, evidence)


# Text


def tolerance(example: Mapping[str, Any]) -> str:
    """What an example of `_example` may be off by, in words."""
    return "which must be exact" if example["allowed"] == "0" else f"allowed error {example['allowed']}"


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


def brackets(numbers: Sequence[int]) -> str:
    """A shape or an index: `[3, 33]`."""
    return f"[{', '.join(str(number) for number in numbers)}]"
