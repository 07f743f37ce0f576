"""Objects that a check puts into the process of the submission's Python, to see there how they are used."""

from collections.abc import Sequence

import numpy as np
from given.tokenizer import Tokenizer

PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645


class CountedDecode:
    """The `decode` of a model's tokenizer, which remembers how much it was asked for at once."""

    def __init__(self, model_dir: str) -> None:
        self._tokenizer = Tokenizer.from_folder(model_dir)
        self._longest = 0

    def __call__(self, ids: Sequence[int]) -> str:
        self._longest = max(self._longest, len(ids))
        return self._tokenizer.decode(ids)

    def longest(self) -> int:
        """The largest number of tokens in one call."""
        return self._longest


def generator_before(largest: bool) -> np.random.Generator:
    """A generator whose next random() is the largest below 1, or 0.

    PCG64 steps state → multiplier · state + increment (mod 2^128), and returns the exclusive or of both halves, turned.
    """
    bits = np.random.PCG64(0)
    state = bits.state
    increment, half = state["state"]["inc"], 0x0123456789ABCDEF
    target = half << 64 | (half ^ (2**64 - 1) if largest else half)
    state["state"]["state"] = (target - increment) * pow(PCG_MULTIPLIER, -1, 2**128) % 2**128
    bits.state = state
    return np.random.Generator(bits)
