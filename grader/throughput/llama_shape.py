"""A random-weight checkpoint of exactly Llama 3.2 1B's shape: speed depends on sizes, not on what the weights are."""

import json
from pathlib import Path

import numpy as np
from given.config import LlamaConfig
from given.contracts import BF16
from safetensors.numpy import save_file

from grader.model.weight_shapes import weight_shapes

SETTINGS = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128_256,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 128_000,
    "eos_token_id": [128_001, 128_008, 128_009],
    "torch_dtype": "bfloat16",
}
DEVIATION = 0.02
DRAWN = 1 << 22
"""So many different numbers are drawn; every weight repeats them from another place on."""


def bench_model(folder: Path) -> LlamaConfig:
    """Write config.json and model.safetensors (2.5 GB) into `folder`, which exists; returns the configuration."""
    (folder / "config.json").write_text(json.dumps(SETTINGS, indent=2) + "\n", encoding="utf-8")
    config = LlamaConfig.from_folder(folder)
    rng = np.random.default_rng(0)
    numbers = (DEVIATION * rng.standard_normal(DRAWN, np.float32)).astype(BF16)
    shapes = weight_shapes(config)
    del shapes["lm_head.weight"]  # tied
    weights = {
        name: np.ones(shape, numbers.dtype)
        if len(shape) == 1
        else np.resize(np.roll(numbers, rng.integers(DRAWN)), shape)
        for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return config
