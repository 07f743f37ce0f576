"""An alternative solution, written from the handouts alone: the tables of rotary position embedding."""

import math

import numpy as np
from given.config import Llama3RopeScaling, LlamaConfig


def rope_tables(config: LlamaConfig, length: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin, each [length, head_dim / 2] float32: row p is for position p, column i for the pair (i, i + D/2)."""
    half = config.head_dim // 2
    frequencies = [config.rope_theta ** (-i / half) for i in range(half)]
    if config.rope_scaling is not None:
        frequencies = [_scaled(frequency, config.rope_scaling) for frequency in frequencies]
    rotations = np.exp(1j * np.outer(np.arange(length, dtype=np.float64), frequencies))  # e^(iφ) = cos φ + i · sin φ
    return rotations.real.astype(np.float32), rotations.imag.astype(np.float32)


def _scaled(frequency: float, scaling: Llama3RopeScaling) -> float:
    """The blend with a share s of the unscaled frequency, cut off at 0 (long waves) and at 1 (short waves)."""
    turns = scaling.original_max_position_embeddings * frequency / (2 * math.pi)
    share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    share = min(max(share, 0.0), 1.0)
    return (1 - share) * frequency / scaling.factor + share * frequency
