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
    # TODO s10.1: weights, then the ids that stay, then their shares
    raise NotImplementedError("s10.1")


def sample(logits: np.ndarray, params: SamplingParams, generator: np.random.Generator) -> int:
    """One token drawn with the `probabilities` of these logits, [vocab_size] float32.

    Takes one number from the generator, so that a request's seed settles all its tokens, and none at temperature 0.
    Raises what `probabilities` raises.
    """
    # TODO s10.2: a uniform number against the running sum
    raise NotImplementedError("s10.2")
