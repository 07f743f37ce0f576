"""Small random models that no submission has seen, with references from the NumPy oracle."""

import json
import math
from pathlib import Path
from typing import Any

import safetensors.numpy
from given.config import LlamaConfig
from given.contracts import BF16
from numpy.random import Generator
from numpy.typing import NDArray

from grader.model.weight_shapes import weight_shapes
from grader.oracle.llama import LlamaOracle
from grader.oracle.references import ReferenceModel


def variant_model(rng: Generator, folder: Path) -> ReferenceModel:
    """Draw a small model and write it into `folder` (which exists) as config.json and model.safetensors.

    Sizes, head ratio, rope base and scaling are drawn, the head is untied, and heads · head_dim need not be the hidden
    size. Two prompts: one of 1 to 5 tokens, and one past position 256.
    """
    settings = _draw_settings(rng)
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    config = LlamaConfig.from_folder(folder)
    weights = {name: _draw_weight(rng, name, shape) for name, shape in weight_shapes(config).items()}
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    oracle = LlamaOracle(config, weights)
    lengths = {"short": int(rng.integers(1, 6)), "long": int(rng.integers(257, 280))}
    prompts = {name: rng.integers(config.vocab_size, size=length) for name, length in lengths.items()}
    return ReferenceModel(folder, oracle, tuple(oracle.reference(name, ids) for name, ids in prompts.items()))


def _draw_settings(rng: Generator) -> dict[str, Any]:
    """The content of a config.json."""
    heads, kv_heads = rng.permutation([(4, 1), (6, 2), (8, 4), (6, 3), (10, 2)])[0].tolist()
    step = math.lcm(8, heads)  # transformers asks for a hidden size that is a multiple of the heads
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": step * int(rng.integers(80 // step, 150 // step, endpoint=True)),
        "intermediate_size": 8 * int(rng.integers(17, 34)),
        "num_hidden_layers": int(rng.integers(2, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": int(rng.choice([16, 24, 32, 40])),
        "vocab_size": int(rng.integers(300, 700)),
        "hidden_act": "silu",
        "rms_norm_eps": float(rng.choice([1e-6, 1e-5, 1e-3])),
        "rope_theta": float(rng.choice([1e3, 1e4, 1e5])),
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": float(rng.choice([2, 4, 16])),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": int(rng.choice([32, 64, 128])),
        },
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 0,
        "eos_token_id": [1, 2],
        "torch_dtype": "bfloat16",
    }


def _draw_weight(rng: Generator, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """bf16 numbers that keep the residual stream near 1 and give scores and logits a spread of a few units."""
    if len(shape) == 1:
        return (1 + 0.3 * rng.standard_normal(shape)).astype(BF16)
    gain = 1.7 if "q_proj" in name or "k_proj" in name or "lm_head" in name else 0.8
    fan_in = 1 if "embed" in name else shape[1]
    return (gain * fan_in**-0.5 * rng.standard_normal(shape)).astype(BF16)
