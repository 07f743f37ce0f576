"""From logits to the next token: temperature, top-k, top-p, and one random draw. All of it in float64, on the host."""

import numpy as np
from given.requests import SamplingParams


def probabilities(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The probability of each token, [vocab_size] float64, from its logits, [vocab_size] float32.

    In this order: the logits are divided by the temperature; exactly top_k tokens stay, the most probable ones; of
    these stay the fewest, most probable first, that hold top_p of their mass, at least one; what stays is normalised.
    Of equally probable tokens the lower id comes first. A temperature of 0 gives probability 1 to the largest logit,
    the lowest id of equal ones, whatever top_k and top_p are.
    A logit of −infinity gets 0. Raises ValueError when any is NaN or the largest is infinite: nothing follows then.
    """
    # s10.1: weights, then the ids that stay, then their shares
    scores = logits.astype(np.float64)
    largest = scores.max()  # NaN where any is NaN
    if not np.isfinite(largest):
        raise ValueError(f"the largest logit is {largest}: no token can be chosen from that")
    result = np.zeros(len(scores))
    if params.temperature == 0:
        result[np.argmax(scores)] = 1
        return result
    with np.errstate(over="ignore"):  # a difference divided by a tiny temperature: exp(−infinity) is 0
        weights = np.exp((scores - largest) / params.temperature)
    kept = _kept(scores, weights, params)
    result[kept] = weights[kept] / weights[kept].sum()
    return result


def _kept(scores: np.ndarray, weights: np.ndarray, params: SamplingParams) -> np.ndarray | slice:
    """The ids that top-k and then top-p leave; what they are sorted by is the scores, which do not underflow."""
    if not params.top_k and params.top_p == 1:
        return slice(None)
    ids = _largest(scores, params.top_k or len(scores))
    mass = np.cumsum(weights[ids])
    return ids[: np.searchsorted(mass, params.top_p * mass[-1]) + 1]


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """The ids of the `count` largest scores, largest first, of equal ones the lower id first."""
    ids = np.arange(len(scores))
    if count < len(scores):  # finding the smallest that stays is much faster than sorting a whole vocabulary
        ids = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    return ids[np.argsort(-scores[ids], kind="stable")][:count]


def sample(logits: np.ndarray, params: SamplingParams, generator: np.random.Generator) -> int:
    """One token drawn with the `probabilities` of these logits, [vocab_size] float32.

    Takes one number from the generator, so that a request's seed settles all its tokens, and none at temperature 0.
    Raises what `probabilities` raises.
    """
    # s10.2: a uniform number against the running sum
    if params.temperature == 0:
        return int(np.argmax(probabilities(logits, params)))
    running = np.cumsum(probabilities(logits, params))
    # Exceeds, not reaches: a token of probability 0 adds nothing, so it is never the first.
    return int(np.searchsorted(running, generator.random() * running[-1], side="right"))
