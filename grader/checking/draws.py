"""Inputs that several stages draw."""

from typing import Any

import numpy as np
from given.config import Llama3RopeScaling, LlamaConfig
from given.contracts import BF16
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[Any]


def floats(rng: Generator, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed float32 numbers of this standard deviation."""
    return np.asarray(rng.standard_normal(shape) * scale, np.float32)


def bf16(rng: Generator, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed bf16 numbers of this standard deviation."""
    return floats(rng, *shape, scale=scale).astype(BF16)


def to_bf16(values: Any) -> Array:
    """These numbers, rounded to bf16."""
    return np.asarray(values, np.float32).astype(BF16)


def integers(rng: Generator, below: int, *shape: int) -> Array:
    """int32 numbers from 0 to below − 1."""
    return rng.integers(below, size=shape, dtype=np.int32)


def rope_config(head_dim: int, theta: float = 500_000.0, scaling: Llama3RopeScaling | None = None) -> LlamaConfig:
    """A model's configuration of which only the rotary embedding matters."""
    return LlamaConfig(
        hidden_size=4 * head_dim,
        intermediate_size=8 * head_dim,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=head_dim,
        vocab_size=256,
        rms_norm_eps=1e-5,
        rope_theta=theta,
        rope_scaling=scaling,
        tie_word_embeddings=False,
        max_position_embeddings=131_072,
        eos_token_ids=(2,),
        bos_token_id=1,
    )
