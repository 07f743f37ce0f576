"""How far apart arrays of numbers are, each number by itself, in any type of sign, exponent and mantissa."""

import numpy as np


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest number of steps from one representable number to the next between two arrays of one type.

    Infinite for NaN beside a number, and for unequal integers; a half for zeros of different signs. Any NaN is like any
    other. The programming guide counts the error of a function in the same way, from the correctly rounded result.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if found.dtype.kind in "iub":
        return 0.0 if np.array_equal(found, expected) else float("inf")
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of signalling NaN
        nan = np.isnan(found), np.isnan(expected)
    if (nan[0] != nan[1]).any():
        return float("inf")
    number = ~nan[0]
    got, wanted = found[number], expected[number]
    signs = np.signbit(got) != np.signbit(wanted)
    steps = np.abs(_position(got) - _position(wanted)) + 0.5 * (signs & (got == 0) & (wanted == 0))
    return float(steps.max(initial=0))


def _position(values: np.ndarray) -> np.ndarray:
    """By integers, one after the other, that lie as the numbers do; both zeros are 0."""
    bits = values.view(f"i{values.itemsize}")
    magnitude = (bits & np.iinfo(bits.dtype).max).astype(np.int64)
    return np.where(bits < 0, -magnitude, magnitude).astype(np.longdouble)
