"""The reference of sampling: which tokens may be drawn, and with which probability."""

import numpy as np
from given.requests import SamplingParams
from numpy.random import Generator
from numpy.typing import NDArray

from grader.compare import Expected, softmax_allowed
from grader.patterns import Values

SMALLEST_SHARE = 1e-4
"""Of a token that top-p may cut off; the running sum has an error of 2^-15 when it is kept in float32."""


def probabilities(logits: NDArray[np.float32], params: SamplingParams) -> Expected:
    """The probability of each token, [vocabulary] float64; exactly 0 for one that top-k or top-p leaves out."""
    chances = np.zeros(len(logits))
    ranked = ranking(logits)
    if params.temperature == 0:
        chances[ranked[0]] = 1
        return Expected(chances, 0, np.float64)
    kept = ranked[: params.top_k or len(ranked)]
    shares = _softmax(logits[kept], params.temperature)
    if params.top_p < 1:
        before = np.cumsum(shares) - shares  # a token stays while those before it have less than top_p
        kept = kept[before < params.top_p]
    chances[kept] = _softmax(logits[kept], params.temperature)
    return Expected(chances, np.where(chances > 0, softmax_allowed(chances), 0), np.float64)


def ranking(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """The ids from the most probable token to the least, equal ones by id."""
    return np.lexsort((np.arange(len(logits)), -logits))


def draw_top_p(rng: Generator, logits: NDArray[np.float32], params: SamplingParams) -> float:
    """A top_p halfway between the mass of some number of tokens and of one less, so that rounding decides nothing."""
    shares = np.sort(probabilities(logits, params).values)[::-1]
    count = int(rng.integers(1, max(1, int(np.sum(shares >= SMALLEST_SHARE))) + 1))
    return float(np.sum(shares[:count]) - shares[count - 1] / 2)


def _softmax(logits: NDArray[np.float32], temperature: float) -> Values:
    """Of logits sorted from the largest on, over the temperature."""
    with np.errstate(over="ignore"):
        weights = np.exp((logits.astype(np.float64) - float(logits[0])) / temperature)
    return np.asarray(weights / weights.sum())
