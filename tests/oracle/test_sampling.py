"""The reference of sampling, on cases worked out by hand and against top-p by its definition."""

import numpy as np
import pytest
from given.requests import SamplingParams
from numpy.typing import NDArray

from grader import oracle
from grader.oracle.sampling import draw_top_p

SIXTEENTHS = np.log(np.array([2, 8, 1, 4, 1], np.float64) / 16).astype(np.float32)


def sixteenths(**fields: float | int) -> NDArray[np.float64]:
    """The probabilities of SIXTEENTHS, in sixteenths."""
    return oracle.probabilities(SIXTEENTHS, SamplingParams(**fields)).values * 16  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, [2, 8, 1, 4, 1]),
        ({"temperature": 0.5}, [4 / 86 * 16, 64 / 86 * 16, 1 / 86 * 16, 16 / 86 * 16, 1 / 86 * 16]),
        ({"temperature": 0, "top_k": 3, "top_p": 0.1}, [0, 16, 0, 0, 0]),
        ({"top_k": 2}, [0, 32 / 3, 0, 16 / 3, 0]),
        ({"top_k": 4}, [32 / 15, 128 / 15, 16 / 15, 64 / 15, 0]),
        ({"top_k": 9}, [2, 8, 1, 4, 1]),
        ({"top_p": 0.4}, [0, 16, 0, 0, 0]),
        ({"top_p": 0.6}, [0, 32 / 3, 0, 16 / 3, 0]),
        ({"top_p": 0.6, "top_k": 2}, [0, 16, 0, 0, 0]),
        ({"top_p": 0.9}, [32 / 15, 128 / 15, 16 / 15, 64 / 15, 0]),
        ({"temperature": 1e-300}, [0, 16, 0, 0, 0]),
    ],
)
def test_cases_by_hand(fields: dict[str, float | int], wanted: list[float]) -> None:
    np.testing.assert_allclose(sixteenths(**fields), wanted, rtol=1e-6)


def test_left_out_tokens_are_exactly_zero() -> None:
    expected = oracle.probabilities(np.array([1, 3, -np.inf, 2], np.float32), SamplingParams(top_k=2))
    assert np.array_equal(np.asarray(expected.allowed) == 0, [True, False, True, False])


def test_top_p_is_the_smallest_prefix_that_reaches_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        logits = np.asarray(rng.standard_normal(rng.integers(1, 40)) * 3, np.float32)
        top_p = draw_top_p(rng, logits, SamplingParams())
        shares = oracle.probabilities(logits, SamplingParams()).values
        kept = oracle.probabilities(logits, SamplingParams(top_p=top_p)).values > 0
        least = shares[kept].min()
        assert shares[~kept].max(initial=0) <= least
        assert shares[kept].sum() - least < top_p - least / 3
        assert shares[kept].sum() > top_p + least / 3
