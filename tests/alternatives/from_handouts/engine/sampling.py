"""An alternative solution: tokens are left out from the least probable up, and NumPy's `choice` draws."""

import numpy as np
from given.requests import SamplingParams


def probabilities(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The probability of each token, [vocab_size] float64."""
    if np.isnan(logits).any() or np.isinf(logits.max()):
        raise ValueError("these logits have no largest one: they hold NaN or infinity, or nothing but -infinity")
    values = np.asarray(logits, np.float64)
    order = np.lexsort((-np.arange(values.size), values))  # least probable first, of equal ones the higher id
    if params.temperature == 0:
        return (np.arange(values.size) == order[-1]).astype(np.float64)
    if params.top_k:
        order = order[-params.top_k :]
    shares = softmax(values[order], params.temperature)
    if params.top_p < 1:
        # A token goes when it and all below it hold no more than 1 - top_p: those above reach top_p without it.
        kept = np.cumsum(shares) > 1 - params.top_p
        kept[-1] = True  # 1 - top_p is 1 for the smallest top_p
        order = order[kept]
    result = np.zeros(values.size)
    result[order] = softmax(values[order], params.temperature)
    return result


def softmax(ascending: np.ndarray, temperature: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        powers = np.exp((ascending - ascending[-1]) / temperature)
    return powers / powers.sum()


def sample(logits: np.ndarray, params: SamplingParams, generator: np.random.Generator) -> int:
    """One token; greedy requests leave the generator alone."""
    chances = probabilities(logits, params)
    if params.temperature == 0:
        return int(chances.argmax())
    return int(generator.choice(chances.size, p=chances))
