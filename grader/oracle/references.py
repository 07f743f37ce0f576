"""The models that an engine is run on, each with prompts and their references.

`load_references` reads `tiny`, whose references Hugging Face's transformers computed (reference_outputs/build.py);
`variant_model` writes a small random model that no submission has seen, with references from the NumPy oracle.
"""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy
from given.config import ConfigError, LlamaConfig
from numpy.random import Generator
from numpy.typing import NDArray

from grader import KIT
from grader.model import GRADED_MODEL, find_model
from grader.model.weight_shapes import weight_shapes
from grader.oracle.llama import Forward, LlamaOracle, Reference

REFERENCES = KIT / "reference_outputs"
TINY = REFERENCES / GRADED_MODEL

BF16 = np.dtype(ml_dtypes.bfloat16)


class ReferenceFileError(Exception):
    """A file of a model or of its references is missing, corrupt or not the recorded one; the message names it."""


@dataclass(frozen=True)
class ReferenceModel:
    """A model's folder (config.json, model.safetensors), its oracle, and prompts with their references."""

    folder: Path
    oracle: LlamaOracle
    references: tuple[Reference, ...]

    @property
    def config(self) -> LlamaConfig:
        return self.oracle.config

    def reference(self, name: str) -> Reference:
        """The prompt of this name."""
        return next(reference for reference in self.references if reference.name == name)


def load_references(folder: Path = TINY, model_dir: Path | None = None) -> ReferenceModel:
    """The model in `model_dir` (`folder`/model) with the references in `folder`/expected, each file as manifest.json
    records it.

    Raises ReferenceFileError.
    """
    model_dir = model_dir or folder / "model"
    manifest = _read_manifest(folder / "expected" / "manifest.json")
    _check_hashes(folder, model_dir, manifest)
    oracle = load_oracle(model_dir)
    references = (
        _read_reference(folder / "expected" / f"{prompt['name']}.safetensors", prompt, manifest.get("last", 0))
        for prompt in manifest["prompts"]
    )
    return ReferenceModel(model_dir, oracle, tuple(references))


def load_model(name: str) -> ReferenceModel:
    """The model of this name with its references. Raises ReferenceFileError; ModelError when it is not here."""
    return load_references() if name == GRADED_MODEL else load_references(REFERENCES / name, find_model(name))


def has_references(name: str) -> bool:
    """Whether the kit holds reference outputs of the model of this name."""
    return bool(re.fullmatch(r"[\w.-]+", name)) and (REFERENCES / name / "expected" / "manifest.json").is_file()


def load_oracle(model_dir: Path) -> LlamaOracle:
    """The oracle of a model folder with config.json and model.safetensors. Raises ReferenceFileError."""
    try:
        return LlamaOracle(LlamaConfig.from_folder(model_dir), _read_tensors(model_dir / "model.safetensors"))
    except ConfigError as error:
        raise ReferenceFileError(f"{error}; {_ADVICE}") from None
    except ValueError as error:
        raise ReferenceFileError(f"{model_dir / 'model.safetensors'}: {error}; {_ADVICE}") from None


_ADVICE = "restore the kit's reference_outputs/ from its release or from git"


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(manifest["files"], dict) and all({"name", "ids"} <= set(entry) for entry in manifest["prompts"]):
            return dict(manifest)
    except OSError as error:
        raise ReferenceFileError(f"{path} cannot be read ({error.strerror}); {_ADVICE}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ReferenceFileError(f"{path} is not the manifest that reference_outputs/build.py writes; {_ADVICE}")


def _check_hashes(folder: Path, model_dir: Path, manifest: dict[str, Any]) -> None:
    for name, recorded in manifest["files"].items():
        is_apart = name.startswith("model/") and model_dir.parent != folder
        path = model_dir / name.removeprefix("model/") if is_apart else folder / name
        advice = f"remove {model_dir} and run make model" if is_apart else _ADVICE
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise ReferenceFileError(f"{path} cannot be read ({error.strerror}); {advice}") from None
        if digest != recorded:
            raise ReferenceFileError(f"{path} is not the file that was recorded: its sha256 differs; {advice}")


def _read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return dict(safetensors.numpy.load_file(path))
    except OSError as error:
        raise ReferenceFileError(f"{path} cannot be read ({error.strerror or 'no such file'}); {_ADVICE}") from None
    except safetensors.SafetensorError as error:
        raise ReferenceFileError(f"{path} is not a whole safetensors file ({error}); {_ADVICE}") from None


def _read_reference(path: Path, prompt: dict[str, Any], last: int) -> Reference:
    """The reference of a prompt; with `last`, only of so many tokens at its end, and without hidden states."""
    tensors = _read_tensors(path)

    def forward(precision: str) -> Forward:
        states = [] if last else list(tensors[f"{precision}.states"].astype(np.float32))
        return Forward(tensors[f"{precision}.logits"].astype(np.float32), states)

    ids = np.asarray(prompt["ids"], np.int32)
    try:
        return Reference(prompt["name"], ids, forward("float32"), forward("bf16"), last)
    except KeyError as error:
        raise ReferenceFileError(f"{path} has no tensor {error}; {_ADVICE}") from None


# Variants


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
