"""Hints of grader.judge.patterns: what wrong values have in common."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from grader.failure import Failure
from grader.judge.compare import Expected, expect
from tests.judge.test_compare import BF16, Array, failure_of, hint_of


@pytest.fixture
def table() -> Array:
    """Random wanted values [6, 40]."""
    return np.random.default_rng(1).standard_normal((6, 40))


def nan_beyond(values: Array, where: Any) -> Array:
    """Not written from there on: all bits are 1."""
    got = values.astype(np.float32)
    got.view(np.uint32)[where] = 0xFFFFFFFF
    return got


def wrong_at(values: Array, where: Any) -> Array:
    got = values.copy()
    got[where] += 1.0 + np.abs(got[where])
    return got


PATTERNS: list[tuple[Callable[[Array], Any], str]] = [
    (
        lambda x: nan_beyond(x, np.s_[:]),
        "Every value is NaN, as if never written: nothing was written, or it was computed from shared memory that was "
        "not written yet (a missing barrier?), which has these bits too. Look at a condition at the store, and at "
        "grid and block of the launch (launch.toml): too few, or x and y exchanged.",
    ),
    (
        lambda x: np.full_like(x, np.nan),
        "The wrong values were written, as NaN. It comes from infinity / infinity or infinity - infinity (expf "
        "overflows from 89 on; a softmax subtracts the maximum first), from 0 / 0, or from memory that was read too "
        "early (a missing barrier?) or past an array.",
    ),
    (lambda x: np.full_like(x, np.inf), "The wrong values were written, as infinity: a number overflowed"),
    (lambda x: np.zeros_like(x), "Every value is zero."),
    (lambda x: x.T.reshape(x.shape), "transposed"),
    (lambda x: np.roll(x, 1, axis=1), "one place after its own, along dimension 1"),
    (lambda x: np.roll(x, -1, axis=1), "one place before its own, along dimension 1"),
    (lambda x: np.roll(x, 1, axis=0), "one place after its own, along dimension 0"),
    (lambda x: x.reshape(6, 20, 2)[..., ::-1].reshape(6, 40), "each pair (0, 1), (2, 3), … are swapped"),
    (lambda x: np.roll(x, 20, axis=1), "first and the second half of each row are swapped"),
    (lambda x: x.reshape(6, 2, 20).swapaxes(1, 2).reshape(6, 40), "interleaved"),
    (lambda x: -x, "wrong sign"),
    (lambda x: 1.06 * x, "Every value is 1.06 times what it should be."),
    (lambda x: x / 40, "1/40, where 40 is the last dimension"),
    (lambda x: x * 40**0.5, "sqrt(40), where 40"),
    (
        lambda x: nan_beyond(x, np.s_[4:]),
        "Every row from 4 on is NaN, as if never written (of 6): no thread wrote there. Look at bounds",
    ),
    (
        lambda x: nan_beyond(x, np.s_[:, 10:]),
        "Every column from 10 on is NaN, as if never written (of 40): no thread wrote there.",
    ),
    (
        lambda x: np.where(np.arange(40) < 10, x, np.nan),
        "The wrong values were written, as NaN. It comes from infinity / infinity",
    ),
    (lambda x: np.where(np.arange(40) < 32, x, x + 3e-3), "The values are close, at most 3.0 times"),
    (lambda x: wrong_at(x, np.s_[1:, 25:]), "Every column from 25 on is wrong (of 40)."),
    (lambda x: wrong_at(x, np.s_[1:]), "The first row is right and every later one is wrong"),
    (lambda x: wrong_at(x, np.s_[2]), "Only row 2 is wrong."),
    (lambda x: wrong_at(x, np.s_[0]), "Only row 0 is wrong."),
    (lambda x: wrong_at(x, np.s_[5]), "Only the last row (5) is wrong."),
    (lambda x: wrong_at(x, np.s_[:, 39]), "Only the last column (39) is wrong."),
    (lambda x: wrong_at(x, np.s_[:, 32:]), "Only the tail is wrong, columns 32 to 39 of 40: look at a last tile"),
    (
        lambda x: x * np.linspace(1.1, 1.6, 6)[:, None],
        "Within a row all values are off by the same factor (row 0: 1.1)",
    ),
    (lambda x: x + 2e-3, "The values are close, at most 2.0 times the allowed error"),
    (lambda x: x + np.random.default_rng(3).standard_normal(x.shape), "None"),
]


@pytest.mark.parametrize(("spoil", "sentence"), PATTERNS, ids=[sentence[:40] for _, sentence in PATTERNS])
def test_hint_names_what_wrong_values_have_in_common(
    table: Array, spoil: Callable[[Array], Any], sentence: str
) -> None:
    hint = hint_of(spoil(table), table)
    assert sentence in hint


def test_hints_in_one_and_three_dimensions() -> None:
    want = np.random.default_rng(4).standard_normal((5, 4, 8))
    assert "Only head 2 is wrong." in hint_of(wrong_at(want, np.s_[:, 2]), want)
    assert hint_of(wrong_at(want, np.s_[1:]), want) == (
        "The first token is right and every later one is wrong. But a first token hides mistakes: its position is 0, "
        "and where it sees a single key any score will do. Look at positions and scores, not at the mask alone."
    )
    flat = np.arange(300.0)
    assert "Only the tail is wrong, elements 256 to 299 of 300" in hint_of(wrong_at(flat, np.s_[256:]), flat)
    assert "Only the last element (256) is wrong." in hint_of(wrong_at(flat[:257], np.s_[256:]), flat[:257])
    assert "Only the tail is NaN, as if never written, elements 256 to 299 of 300" in hint_of(
        nan_beyond(flat, np.s_[256:]), flat
    )


def test_nan_where_0_is_wanted_is_0_divided_by_0() -> None:
    want = np.zeros((3, 8))
    want[2] = np.arange(8)
    assert hint_of(np.where(want == 0, np.nan, want), want) == (
        "The wrong values were written, as NaN, where 0 is wanted: most likely 0 / 0, a division by a sum to which "
        "nothing was added. Test for that before you divide."
    )


def test_bf16_that_was_never_written_has_one_cause_only() -> None:
    filled = np.full((3, 8), 0xFFFF, np.uint16).view(BF16)
    assert failure_of(filled, np.ones((3, 8)), 0, BF16).evidence["hint"] == (
        "Every value is NaN, as if never written: nothing was written. Look at a condition at the store, and at "
        "grid and block of the launch (launch.toml): too few, or x and y exchanged."
    )


def test_what_an_array_held_before_the_call_is_known_in_place() -> None:
    before = np.arange(300, dtype=np.float32)
    want, got = before + 5, before + 5
    got[256:] = before[256:]
    with pytest.raises(Failure) as caught:
        expect(got, Expected(want, 0, np.float32, before=before), "x")
    assert str(caught.value.evidence["hint"]).startswith(
        "Only the tail is as it was before the call, elements 256 to 299 of 300: no thread wrote there, or only "
        "what was there before. Look at bounds and conditions around the store, and at grid and block of the launch"
    )


def test_where_inputs_hold_nan_is_told_when_nan_comes_out() -> None:
    expected = Expected(np.ones((3, 8)), 0, np.float32, about_nan="The caches hold NaN behind each context.")
    with pytest.raises(Failure) as caught:
        expect(np.full((3, 8), np.nan, np.float32), expected)
    assert caught.value.evidence["hint"] == (
        "The wrong values were written, as NaN. The caches hold NaN behind each context."
    )


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 2), (3, 1, 4)])
def test_few_or_equal_values_get_no_far_fetched_hint(shape: tuple[int, ...]) -> None:
    assert hint_of(np.full(shape, 5.0), np.full(shape, 2.0)) == "None"


def test_that_one_of_three_values_is_close_says_nothing() -> None:
    want = np.array([[1.0], [2.0], [3.0]])
    assert "close" not in hint_of(want + np.array([[2e-3], [0], [0]]), want)
