"""Exact rounding to any binary format in NumPy, written from the definition of IEEE 754: the judge of conversions."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np


class Format(NamedTuple):
    dtype: Any
    digits: int
    """Of the mantissa, in bits, with the leading one."""
    least: int
    """Exponent of the smallest normal number."""
    largest: float


BFLOAT16 = Format(ml_dtypes.bfloat16, 8, -126, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max))
HALF = Format(np.float16, 11, -14, 65504.0)
FLOAT = Format(np.float32, 24, -126, float(np.finfo(np.float32).max))

WHOLE = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}


def rounded(values: np.ndarray, form: Format, direction: str = "rn") -> np.ndarray:
    """Float64 values in a format, each rounded once."""
    values = np.asarray(values, np.float64)
    exponent = np.maximum(np.frexp(values)[1] - 1, form.least) - (form.digits - 1)
    result = np.ldexp(WHOLE[direction](np.ldexp(values, -exponent)), exponent)
    beyond = np.isfinite(values) & (np.abs(result) > form.largest)
    stays = (direction == "rz") | ((direction == "ru") & (values < 0)) | ((direction == "rd") & (values > 0))
    limit = np.where(stays, form.largest, np.inf)
    return np.where(beyond, np.copysign(limit, values), result).astype(form.dtype)


def added(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in float64, rounded to odd: rounding that to a shorter format is as if the sum had been rounded once."""
    total = a + b
    part = total - a
    lost = (a - (total - part)) + (b - part)
    even = (total.view(np.int64) & 1) == 0
    inexact = np.isfinite(total) & (lost != 0) & even
    return np.where(inexact, np.nextafter(total, np.copysign(np.inf, lost)), total)


def to_odd(values: np.ndarray) -> np.ndarray:
    """Integers of 64 bits in float64, rounded to odd."""
    wide = np.abs(values.astype(np.float64)) >= 2.0**53
    sticky = (values >> values.dtype.type(11) << values.dtype.type(11)) | np.where(
        values & values.dtype.type(0x7FF), 0x800, 0
    ).astype(values.dtype)
    return np.where(wide, sticky, values).astype(np.float64)


def to_integer(values: np.ndarray, dtype: Any, direction: str) -> np.ndarray:
    """Float64 values as CUDA converts them: to the nearest integer of the type, NaN to 0 or to the sign bit of 64."""
    limits = np.iinfo(dtype)
    whole = WHOLE[direction](values)
    inside = (whole > limits.min) & (whole < limits.max)  # with limits rounded to float64: the ends are given below
    result = np.where(inside, whole, 0).astype(dtype)
    result[whole <= limits.min] = limits.min
    result[whole >= limits.max] = limits.max
    nan = np.zeros(1, dtype) if limits.bits < 64 else np.array([1 << 63], np.uint64).view(dtype)
    return np.where(np.isnan(values), nan, result)
