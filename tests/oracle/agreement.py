"""How far two computations of the same model may be apart: Hugging Face's and the NumPy oracle's."""

import numpy as np

from grader.judge.compare import row_errors
from grader.judge.patterns import Values
from grader.oracle.llama import HUGGING_FACE_BF16, Forward, LlamaOracle, Reference

FLOAT32_TOLERANCE = 1e-5
"""Of the largest value; 2e-6 was seen."""
ENOUGH_ROWS = 8
"""With fewer, the median of the rows' bf16 errors says little."""


def disagreements(oracle: LlamaOracle, reference: Reference) -> list[str]:
    """What of the reference the oracle does not agree with, a line each; empty when it agrees.

    float32: each value within FLOAT32_TOLERANCE of the largest. bf16: the median row is about as far from the float32
    reference in the oracle as in the reference (a quarter more or less), and the two are no further from each other
    than 1.5 times that.
    """
    exact, rounded = oracle.forward(reference.ids), oracle.forward(reference.ids, HUGGING_FACE_BF16)
    found = []
    for name, got, got_bf16, want, want_bf16 in zip(
        names(exact), *map(arrays, (exact, rounded, reference.float32, reference.bf16)), strict=True
    ):
        error = float(np.abs(got - want).max())
        if not error <= FLOAT32_TOLERANCE * np.abs(want).max():
            found.append(f"{reference.name}, {name} in float32: off by {error:.2g}")
        distance = median_error(want_bf16, want)
        if len(want) >= ENOUGH_ROWS and distance > 0:
            ratios = median_error(got_bf16, want) / distance, median_error(got_bf16, want_bf16) / distance
            if not (0.75 <= ratios[0] <= 1.25 and ratios[1] <= 1.5):
                found.append(f"{reference.name}, {name} in bf16: the errors' ratios are {ratios}")
    return found


def names(forward: Forward) -> list[str]:
    return ["logits", *(f"state {index}" for index in range(len(forward.states)))]


def arrays(forward: Forward) -> list[Values]:
    return [np.asarray(array, np.float64) for array in (forward.logits, *forward.states)]


def median_error(got: Values, reference: Values) -> float:
    return float(np.median(row_errors(got, reference)))
