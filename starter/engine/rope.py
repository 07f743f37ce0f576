"""Rotary position embedding: the tables of cosines and sines. The rotation itself is kernels/rope.cu."""

import numpy as np
from given.config import LlamaConfig


def rope_tables(config: LlamaConfig, length: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin, each [length, head_dim / 2] float32: row p is for position p, column i for the pair (i, i + D/2).

    The angle is p · rope_theta^(−2i / head_dim); with `config.rope_scaling` the frequencies are scaled as Llama 3 does:
    wavelengths (2π / frequency) above original / low_freq_factor are stretched by `factor`, wavelengths below
    original / high_freq_factor stay, in between the two frequencies are blended in proportion to original / wavelength.
    """
    # TODO s04.1: frequencies, their scaling, the angles of all positions
    raise NotImplementedError("s04.1")
