"""Rotary position embedding: the tables of cosines and sines. The rotation itself is kernels/rope.cu."""

import numpy as np
from given.config import LlamaConfig


def rope_tables(config: LlamaConfig, length: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin, each [length, head_dim / 2] float32: row p is for position p, column i for the pair (i, i + D/2).

    The angle is p · rope_theta^(−2i / head_dim); with `config.rope_scaling` the frequencies are scaled as Llama 3 does:
    wavelengths (2π / frequency) above original / low_freq_factor are stretched by `factor`, wavelengths below
    original / high_freq_factor stay, in between the two frequencies are blended in proportion to original / wavelength.
    """
    # s04.1: frequencies, their scaling, the angles of all positions
    # In float64 throughout: at position 100,000 a float32 angle is already wrong in the third decimal.
    frequencies = config.rope_theta ** (-np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim)
    if (scaling := config.rope_scaling) is not None:
        turns = scaling.original_max_position_embeddings * frequencies / (2 * np.pi)  # within the original context
        kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        kept = np.clip(kept, 0.0, 1.0)  # 1 where the frequency stays, 0 where it is divided by the factor
        frequencies = kept * frequencies + (1.0 - kept) * frequencies / scaling.factor
    angles = np.outer(np.arange(length), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
