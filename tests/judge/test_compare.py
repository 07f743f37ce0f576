"""Verdicts, tolerances and hints of grader.judge.compare and grader.judge.patterns."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from grader.failure import Failure
from grader.judge.compare import (
    Expected,
    attention_allowed,
    bf16_allowed,
    expect,
    expect_rows,
    rope_tables_allowed,
    row_ratios,
    softmax_allowed,
    ulp_bf16,
    worst_ratio,
)

BF16 = ml_dtypes.bfloat16
Array = NDArray[Any]


def failure_of(got: Any, values: Any, allowed: Any = 1e-3, dtype: Any = np.float32, name: str = "out") -> Failure:
    with pytest.raises(Failure) as caught:
        expect(got, Expected(np.asarray(values), allowed, dtype), name)
    return caught.value


def hint_of(got: Any, values: Any, allowed: Any = 1e-3) -> str:
    return str(failure_of(np.asarray(got, np.float32), values, allowed).evidence.get("hint"))


# Tolerances


@pytest.mark.parametrize(
    ("reference", "exponent"),
    [
        (1.0, -7),  # eight bits of significand: the step from 1 up is 2^-7
        (np.nextafter(1.0, 0.0), -8),
        (-1.0, -7),
        (1.999, -7),
        (2.0, -6),
        (0.5, -8),
        (2.0**-126, -133),  # the smallest normal number
        (2.0**-130, -133),  # below it the step stays
        (0.0, -133),
    ],
)
def test_ulp_bf16_is_exact_also_at_powers_of_two(reference: float, exponent: int) -> None:
    assert float(ulp_bf16(reference)) == 2.0**exponent


def test_ulp_bf16_is_the_distance_to_the_next_number() -> None:
    values = np.arange(0x0080, 0x7F00, 37, dtype=np.uint16).view(BF16)
    following = (values.view(np.uint16) + 1).view(BF16)
    assert np.array_equal(ulp_bf16(values.astype(np.float64)), following.astype(np.float64) - values.astype(np.float64))


def test_one_operation_rule_by_hand() -> None:
    allowed = bf16_allowed(np.array([1.0, 3.0]), np.array([4.0, 8.0]), roundings=2)
    assert np.array_equal(allowed, [2 * 2.0**-7 + 2.0**-16 + 2.0**-100, 2 * 2.0**-6 + 2.0**-15 + 2.0**-100])


def test_attention_rule_by_hand() -> None:
    allowed = attention_allowed(np.array([1.0]), np.array([4.0]), np.array([32.0]))
    base = 2.0**-7 + 2.0**-16 + 2.0**-100
    assert np.array_equal(allowed, [base + 2.0**-21 * 32 * 4 + 2.0**-8 * 4])


def test_softmax_and_table_rules_by_hand() -> None:
    assert float(softmax_allowed(0.5)) == 2.0**-16 + 2.0**-120
    assert float(rope_tables_allowed(1024.0)) == 2.0**-12 + 2.0**-22
    assert float(rope_tables_allowed(0.0)) == 2.0**-22


def test_correctly_rounded_results_use_at_most_half_of_the_tolerance() -> None:
    reference = np.random.default_rng(2).standard_normal(10_000) * 2.0 ** np.arange(10_000).clip(0, 90)
    expected = Expected(reference, bf16_allowed(reference, np.zeros(10_000)), BF16)
    expect(reference.astype(BF16), expected)
    assert 0.45 < worst_ratio(reference.astype(BF16), expected) <= 0.5


# Verdicts


def test_equal_values_pass_for_every_dtype() -> None:
    for dtype in (BF16, np.float16, np.float32, np.float64, np.int32, np.uint16, np.bool_):
        values = np.array([[0, 1], [1, 0]]).astype(dtype)
        expect(values, Expected(values, 0, dtype))
    expect(np.zeros((0, 5), np.float32), Expected(np.zeros((0, 5)), 0, np.float32))
    expect(np.float32(3), Expected(np.array(3.0), 0, np.float32))


def test_the_message_says_how_many_where_and_by_how_much() -> None:
    want = np.zeros((3, 33))
    want[2, 5] = 0.125
    got = want.astype(BF16)
    got[2, 5], got[2, 7] = 0.131, 4.0
    failure = failure_of(got, want, 0.0005, BF16)
    assert failure.verdict == "INCORRECT_VALUE"
    assert failure.message == (
        "2 of 99 values are wrong. First: out[2, 5] = 0.1309, want 0.125 (allowed error 0.0005)."
    )
    assert failure.evidence["first"] == {
        "name": "out",
        "index": [2, 5],
        "got": "0.1309",
        "want": "0.125",
        "allowed": "0.0005",
    }
    assert failure.evidence["worst"] == {"name": "out", "index": [2, 7], "got": "4", "want": "0", "allowed": "0.0005"}
    assert (failure.evidence["wrong"], failure.evidence["total"]) == (2, 99)


def test_a_single_value_is_not_counted() -> None:
    failure = failure_of(np.array([3], np.int32), [4], 0, np.int32, "ids")
    assert failure.message == "The only value is wrong. First: ids[0] = 3, want 4 (which must be exact)."


def test_exact_values_are_said_to_be_exact() -> None:
    failure = failure_of(np.array([1, 2, 4], np.int32), [1, 2, 3], 0, np.int32, "ids")
    assert failure.message == "1 of 3 values is wrong. First: ids[2] = 4, want 3 (which must be exact)."


def test_what_the_formulas_allow_beside_nothing_is_told_as_exact() -> None:
    failure = failure_of(np.array([1, 3], BF16), [0.0, 0.0], bf16_allowed(0, 0), BF16)
    assert failure.message == "2 of 2 values are wrong. First: out[0] = 1, want 0 (which must be exact)."


def test_integers_are_compared_exactly_past_the_reach_of_float64() -> None:
    big = 2**53
    failure_of(np.array([big + 1], np.int64), np.array([big], np.int64), 0, np.int64)
    expect(np.array([big + 1], np.int64), Expected(np.array([big + 1], np.int64), 0, np.int64))


def test_numbers_that_differ_look_different() -> None:
    failure = failure_of(np.array([1.0 + 2.0**-23], np.float32), [1.0], 0)
    assert failure.evidence["first"]["got"] != failure.evidence["first"]["want"]


def test_a_wrong_shape_is_named_before_anything_else() -> None:
    failure = failure_of(np.full((4, 3), np.nan, np.float64), np.zeros((3, 4)))
    assert (failure.verdict, failure.message) == ("INCORRECT_SHAPE", "out has shape [4, 3]; it must be [3, 4].")
    assert "another order" in failure.evidence["hint"]
    assert "hint" not in failure_of(np.zeros((4,), np.float32), np.zeros((3, 4))).evidence


def test_a_wrong_dtype_is_named() -> None:
    failure = failure_of(np.zeros(3, np.float64), np.zeros(3), 0, BF16)
    assert (failure.verdict, failure.message) == ("INCORRECT_DTYPE", "out has dtype float64; it must be bfloat16.")


@pytest.mark.parametrize(("got", "said"), [(None, "nothing (None)"), ([1.0], "type list"), ("x", "type str")])
def test_what_is_no_array_is_named(got: Any, said: str) -> None:
    failure = failure_of(got, np.zeros(3), name="the result")
    assert failure.verdict == "INCORRECT_DTYPE"
    assert said in failure.message
    assert "float32 array of shape [3]" in failure.message


def test_nan_and_infinity_have_a_verdict_of_their_own() -> None:
    got = np.array([1.0, np.nan, np.inf, 9.0], np.float32)
    failure = failure_of(got, [1.0, 2.0, 3.0, 4.0])
    assert failure.verdict == "NOT_FINITE"
    assert failure.message.startswith("3 of 4 values are wrong, 2 of them NaN or infinite. First: out[1] = NaN, want 2")
    assert failure.evidence["worst"]["index"] == [1]


def test_nan_is_right_only_where_it_is_wanted() -> None:
    expect(np.array([np.nan, 1], np.float32), Expected(np.array([np.nan, 1]), 1e-3, np.float32))
    failure = failure_of(np.array([0, 1], np.float32), [np.nan, 1])
    assert failure.verdict == "INCORRECT_VALUE"
    assert "out[0] = 0, want NaN" in failure.message
    # An allowance that is NaN or infinite allows nothing.
    failure_of(np.array([5], np.float32), [1.0], np.nan)
    failure_of(np.array([5], np.float32), [1.0], np.inf)


def test_infinities_must_have_the_right_sign() -> None:
    want = np.array([np.inf, -np.inf])
    expect(want.astype(np.float32), Expected(want, 1e-3, np.float32))
    assert "= -infinity, want infinity" in failure_of(-want.astype(np.float32), want).message
    failure_of(np.array([3e38, -np.inf], np.float32), want)


def test_a_value_that_rounds_to_infinity_may_be_infinite() -> None:
    expect(np.array([np.inf], BF16), Expected(np.array([3.4e38]), 0, BF16))


def test_the_map_counts_every_wrong_value_in_at_most_64_cells_a_side() -> None:
    want = np.zeros((300, 1000))
    got = want.astype(np.float32)
    got[299, 990:] = 1
    cells = failure_of(got, want).evidence["map"]
    counts = np.array(cells["counts"])
    assert (cells["rows"], cells["columns"], cells["depth"], counts.shape) == (300, 1000, 1, (64, 64))
    assert counts.sum() == 10
    assert counts[:-1].sum() == 0
    assert np.array(failure_of(np.ones(5, np.float32), np.zeros(5)).evidence["map"]["counts"]).shape == (1, 5)


def test_the_map_of_tokens_and_heads_has_a_cell_for_each_head() -> None:
    want = np.zeros((5, 12, 24))
    got = want.astype(np.float32)
    got[3, 7], got[4, 0, 5] = 1, 1
    cells = failure_of(got, want).evidence["map"]
    counts = np.zeros((5, 12), int)
    counts[3, 7], counts[4, 0] = 24, 1
    assert cells == {"rows": 5, "columns": 12, "depth": 24, "counts": counts.tolist()}


def test_worst_ratio_measures_in_units_of_the_tolerance() -> None:
    expected = Expected(np.array([1.0, 2.0]), np.array([0.5, 0.5]), np.float32)
    assert worst_ratio(np.array([1.25, 2.0], np.float32), expected) == 0.5
    assert worst_ratio(np.array([1.0, 4.0], np.float32), expected) == 4.0
    assert worst_ratio(np.array([np.nan, 2.0], np.float32), expected) == np.inf
    assert worst_ratio(np.zeros(0, np.float32), Expected(np.zeros(0), 0, np.float32)) == 0


# Rows


@pytest.fixture
def logits() -> tuple[Array, Array]:
    """Reference [7, 50] float32 and its bf16 run, whose rms error is exactly 0.01 in each row but 0.1 in row 3."""
    reference = np.random.default_rng(5).standard_normal((7, 50))
    error = np.full((7, 1), 0.01)
    error[3] = 0.1
    return reference, reference + error


def shifted(reference: Array, *errors: tuple[Any, float]) -> Array:
    got = reference.copy()
    for rows, error in errors:
        got[rows] += error
    return got.astype(np.float32)


def test_rows_within_both_rules_pass(logits: tuple[Array, Array]) -> None:
    reference, bf16 = logits
    got = shifted(reference, (np.s_[:], 0.0149), (1, 0.06), (3, 0.78))
    expect_rows(got, reference, bf16)
    worst, median = row_ratios(got, reference, bf16)
    assert worst == pytest.approx((0.78 + 0.0149) / 0.8, rel=1e-3)
    assert median == pytest.approx(0.0149 / 0.015, rel=1e-3)
    expect_rows(np.zeros((0, 5), np.float32), np.zeros((0, 5)), np.zeros((0, 5)))


def test_one_far_row_fails(logits: tuple[Array, Array]) -> None:
    reference, bf16 = logits
    with pytest.raises(Failure) as caught:
        expect_rows(shifted(reference, (2, 0.081)), reference, bf16)
    assert caught.value.verdict == "INCORRECT_VALUE"
    assert caught.value.message == ("1 of 7 rows is wrong. First: logits[2], whose rms error is 0.081 (allowed 0.08).")
    assert "hint" not in caught.value.evidence


def test_many_slightly_wrong_rows_fail_by_their_median(
    logits: tuple[Array, Array],
) -> None:
    reference, bf16 = logits
    with pytest.raises(Failure, match=r"No row of states\[1\] is far off.* rows is 0\.016 \(allowed 0\.015\)"):
        expect_rows(shifted(reference, (np.s_[:], 0.016)), reference, bf16, "states[1]")


def test_the_median_of_few_rows_is_not_judged(logits: tuple[Array, Array]) -> None:
    reference, bf16 = logits
    got = shifted(reference, (np.s_[:], 0.016))
    expect_rows(got[:5], reference[:5], bf16[:5])
    with pytest.raises(Failure):
        expect_rows(got[:6], reference[:6], bf16[:6])


def test_nan_rows_fail_and_say_from_where(logits: tuple[Array, Array]) -> None:
    reference, bf16 = logits
    with pytest.raises(Failure) as caught:
        expect_rows(shifted(reference, (np.s_[4:], np.nan)), reference, bf16)
    assert caught.value.verdict == "NOT_FINITE"
    assert caught.value.evidence["hint"] == "Every row from 4 on is wrong (of 7)."
    assert caught.value.evidence["first"] == {"name": "logits", "index": [4], "error": "NaN", "allowed": "0.08"}


def test_rows_have_shape_and_dtype_verdicts(logits: tuple[Array, Array]) -> None:
    reference, bf16 = logits
    with pytest.raises(Failure, match=r"INCORRECT_SHAPE: logits has shape \[1, 50\]"):
        expect_rows(reference[:1].astype(np.float32), reference, bf16)
    with pytest.raises(Failure, match="INCORRECT_DTYPE: logits has dtype float64; it must be float32"):
        expect_rows(reference, reference, bf16)
