"""Recognises what wrong values have in common, and says it in one sentence that points at the likely cause.

A hint is given only when it explains every wrong value; the first pattern that fits is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]

FEWEST = 4
"""With fewer values, or fewer different ones, a rearrangement or a factor would fit by chance."""

TILE = 8
"""Only a tail that begins at a multiple of it suggests a last tile."""

BEFORE = {True: "NaN, as if never written", False: "as it was before the call"}
"""What is said of values that were not written, by whether they are an output's."""

LAUNCH = "at grid and block of the launch (launch.toml): too few, or x and y exchanged"
POISON = (
    ", or it was computed from shared memory that was not written yet (a missing barrier?), which has these bits too"
)
"""Arithmetic in float32 keeps the bits of a NaN on the emulator."""

FIRST_TOKEN = (
    "But a first token hides mistakes: its position is 0, and where it sees a single key any score will do. Look at "
    "positions and scores, not at the mask alone."
)

_AXES = {1: ("element",), 2: ("row", "column"), 3: ("token", "head", "component")}


@dataclass(frozen=True)
class Comparison:
    """Returned and wanted values, the allowed and actual error of each, and which are wrong; all of one shape."""

    got: Values
    want: Values
    allowed: Values
    error: Values
    wrong: Mask
    unwritten: Mask
    """Where every bit is as it was before the call."""
    is_output: bool = True
    """Whether the call fills the array, whose bits were all 1; else it changes the array in place."""
    is_float32: bool = False

    def explained_by(self, candidate: Values, slack: float = 1.0) -> bool:
        """Whether `candidate`, made from what was returned, is what was wanted."""
        return _fits(candidate, self.want, slack * self.allowed)

    def distinctive(self) -> bool:
        """Whether the wanted values are so many and so different that a fit is no accident."""
        return _distinctive(self.want, self.allowed)


def describe(comparison: Comparison, about_nan: str = "") -> str | None:
    """One sentence on what the wrong values have in common; None when nothing known fits.

    `about_nan` says where the inputs hold NaN that must not be read.
    """
    if sentence := _unwritten(comparison) or _not_finite(comparison, about_nan):
        return sentence
    for pattern in _PATTERNS:
        sentence = pattern(comparison)
        if sentence:
            return sentence
    return None


def describe_region(wrong: Mask, word: str = "wrong", names: Sequence[str] = ()) -> str | None:
    """One sentence on where along one dimension values are wrong; `names` are those of the dimensions.

    A first index that alone is right may be so by chance, as RoPE's position 0 is: that is told last.
    """
    first_right = None
    names = names or _AXES.get(wrong.ndim) or [f"index of dimension {axis}" for axis in range(wrong.ndim)]
    for axis, name in enumerate(names):
        hit = np.asarray(wrong.any(axis=tuple(other for other in range(wrong.ndim) if other != axis)))
        sentence = _region(hit, name, word, alone=int(wrong.sum()) == 1)
        if sentence and not sentence.startswith("The first"):
            return sentence
        first_right = sentence or first_right
    return first_right


def _region(hit: Mask, name: str, word: str, alone: bool) -> str | None:
    """The same for one dimension; `alone` says that a single value is wrong, whose index the message tells already."""
    count, length, start = int(hit.sum()), hit.size, int(hit.argmax())
    if count == length:
        return None
    if count == 1 and start == length - 1:
        return f"Only the last {name} ({start}) is {word}."
    if count == 1:
        return None if alone else f"Only {name} {start} is {word}."
    if start == 1 and count == length - 1:
        return f"The first {name} is right and every later one is {word}."
    if 2 * start >= length and 2 * count > length - start and start % TILE == 0:
        return f"Only the tail is {word}, {name}s {start} to {length - 1} of {length}."
    return f"Every {name} from {start} on is {word} (of {length})." if count == length - start else None


# Nothing was computed


def _unwritten(comparison: Comparison) -> str | None:
    """On wrong values that all are as they were before the call."""
    if not comparison.unwritten[comparison.wrong].all():
        return None
    state = BEFORE[comparison.is_output]
    same = "" if comparison.is_output else ", or only what was there before"
    if comparison.unwritten.all():
        perhaps = same or POISON * comparison.is_float32
        return f"Every value is {state}: nothing was written{perhaps}. Look at a condition at the store, and {LAUNCH}."
    where = (describe_region(comparison.wrong, state) or f"The wrong values are {state}.")[:-1]
    return f"{where}: no thread wrote there{same}. Look at bounds and conditions around the store, and {LAUNCH}."


def _not_finite(comparison: Comparison, about_nan: str) -> str | None:
    """On wrong values that were computed, and all are NaN or infinite."""
    got, want = comparison.got[comparison.wrong], comparison.want[comparison.wrong]
    if np.isfinite(got).any() or comparison.unwritten[comparison.wrong].all():
        return None
    if np.isinf(got).all():
        return (
            "The wrong values were written, as infinity: a number overflowed (expf: from 89 on), or was divided by 0."
        )
    if np.isnan(got).all() and not want.any():
        return (
            "The wrong values were written, as NaN, where 0 is wanted: most likely 0 / 0, a division by a sum to which "
            "nothing was added. Test for that before you divide."
        )
    causes = about_nan or (
        "It comes from infinity / infinity or infinity - infinity (expf overflows from 89 on; a softmax subtracts the "
        "maximum first), from 0 / 0, or from memory that was read too early (a missing barrier?) or past an array."
    )
    return f"The wrong values were written, as NaN{' or infinity' * bool(np.isinf(got).any())}. {causes}"


def _all_zero(comparison: Comparison) -> str | None:
    return "Every value is zero." if comparison.got.size > 1 and not comparison.got.any() else None


# The right values in the wrong places


def _transposed(comparison: Comparison) -> str | None:
    got = comparison.got
    if got.ndim < 2 or min(got.shape[-2:]) < 2 or not comparison.distinctive():
        return None
    *front, rows, columns = got.shape
    if comparison.explained_by(got.reshape(*front, columns, rows).swapaxes(-1, -2)):
        return "The values are right but transposed: rows and columns are swapped in an address."
    return None


def _shifted(comparison: Comparison) -> str | None:
    for axis in reversed(range(comparison.got.ndim)):
        for shift, direction in ((1, "after"), (-1, "before")):
            if _equal_when_shifted(comparison, axis, shift):
                return f"The values are right but each stands one place {direction} its own, along dimension {axis}."
    return None


def _equal_when_shifted(comparison: Comparison, axis: int, shift: int) -> bool:
    """Whether got[i + shift] is want[i], for all i for which both exist."""
    length = comparison.got.shape[axis]
    if length <= FEWEST:
        return False
    taken, kept = (range(1, length), range(length - 1)) if shift == 1 else (range(length - 1), range(1, length))
    want, allowed = np.take(comparison.want, kept, axis), np.take(comparison.allowed, kept, axis)
    return _distinctive(want, allowed) and _fits(np.take(comparison.got, taken, axis), want, allowed)


def _swapped(comparison: Comparison) -> str | None:
    shape = comparison.got.shape
    if not shape or shape[-1] < FEWEST or shape[-1] % 2 or not comparison.distinctive():
        return None
    pairs = comparison.got.reshape(*shape[:-1], shape[-1] // 2, 2)
    halves = comparison.got.reshape(*shape[:-1], 2, shape[-1] // 2)
    candidates = (
        (pairs[..., ::-1], "The two values of each pair (0, 1), (2, 3), … are swapped."),
        (halves[..., ::-1, :], "The first and the second half of each row are swapped."),
        (
            pairs.swapaxes(-1, -2),
            "The two halves of each row are interleaved: pairs are (i, i + D/2), not (2i, 2i + 1).",
        ),
    )
    for candidate, sentence in candidates:
        if comparison.explained_by(candidate.reshape(shape)):
            return sentence
    return None


# The wrong scale


def _constant_factor(comparison: Comparison) -> str | None:
    if comparison.wrong.mean() < 0.75 or not comparison.distinctive():
        return None
    factor = _factor(comparison.got, comparison.want)
    if abs(factor) < 1e-6 or abs(factor - 1) < 1e-3:
        return None
    if not comparison.explained_by(comparison.got / factor, 1 + 1 / abs(factor)):
        return None
    if abs(factor + 1) < 1e-3:
        return "Every value has the wrong sign."
    return f"Every value is {factor:.4g} times what it should be{_known_factor(comparison.got.shape[-1], factor)}."


def _known_factor(width: int, factor: float) -> str:
    """Where a factor comes from, when it is a power of the last dimension."""
    powers = {f"{width}": width, f"1/{width}": 1 / width, f"sqrt({width})": width**0.5, f"1/sqrt({width})": width**-0.5}
    for text, power in powers.items():
        if width > 2 and abs(factor / power - 1) < 0.01:
            return f": {text}, where {width} is the last dimension"
    return ""


def _factor_per_row(comparison: Comparison) -> str | None:
    got, want = comparison.got, comparison.want
    if got.ndim != 2 or got.shape[0] < 2 or got.shape[1] < FEWEST or not comparison.distinctive():
        return None
    factors = np.array([_factor(*pair) for pair in zip(got, want, strict=True)])
    row = int(comparison.wrong.any(axis=1).argmax())
    smallest = float(np.abs(factors).min())
    if smallest < 0.01 or abs(factors[row] - 1) < 1e-3:
        return None
    if not comparison.explained_by(got / factors[:, None], 1 + 1 / smallest):
        return None
    return (
        f"Within a row all values are off by the same factor (row {row}: {factors[row]:.4g}): "
        "the sum or the maximum over the row is wrong."
    )


def _factor(got: Values, want: Values) -> float:
    """The factor that best maps want to got; 0 when there is none."""
    with np.errstate(all="ignore"):
        factor = float(np.sum(got * want) / np.sum(want * want))
    return factor if np.isfinite(factor) else 0.0


# Wrong in one region


def _one_region(comparison: Comparison) -> str | None:
    sentence = describe_region(comparison.wrong)
    if sentence and sentence.startswith("Only the tail"):
        return f"{sentence[:-1]}: look at a last tile that is not full, or at a bound."
    return f"{sentence} {FIRST_TOKEN}" if sentence and sentence.startswith("The first token") else sentence


def _very_close(comparison: Comparison) -> str | None:
    return _close(comparison, 4)


def _close(comparison: Comparison, most: float = 16) -> str | None:
    if comparison.wrong.size < FEWEST:
        return None
    with np.errstate(all="ignore"):
        ratio = float(np.max(comparison.error[comparison.wrong] / comparison.allowed[comparison.wrong]))
    if not ratio <= most:
        return None
    return (
        f"The values are close, at most {ratio:.1f} times the allowed error away. Often a sum is not accumulated in "
        "float32, or a value is rounded before it is stored; or a small constant (eps, a scale) is a little off."
    )


_PATTERNS = (
    _all_zero,
    _transposed,
    _shifted,
    _swapped,
    _constant_factor,
    _very_close,
    _one_region,
    _factor_per_row,
    _close,
)


def _fits(candidate: Values, want: Values, allowed: Values) -> bool:
    with np.errstate(all="ignore"):
        near = np.abs(candidate - want) <= allowed
    return bool((near | (candidate == want) | (np.isnan(candidate) & np.isnan(want))).all())


def _distinctive(want: Values, allowed: Values) -> bool:
    finite = want[np.isfinite(want)][:4096]
    return np.unique(finite).size >= FEWEST and bool(np.ptp(finite) > 8 * np.max(allowed))
