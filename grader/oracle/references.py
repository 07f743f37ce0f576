"""The models that an engine is run on, each with prompts and their references.

`load_references` reads `tiny`, whose references Hugging Face's transformers computed (reference_outputs/build.py); of
models that are drawn see variants.py.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from given.config import ConfigError, LlamaConfig
from numpy.typing import NDArray

from grader import KIT
from grader.model import GRADED_MODEL, find_model
from grader.oracle.llama import Forward, LlamaOracle, Reference

REFERENCES = KIT / "reference_outputs"
TINY = REFERENCES / GRADED_MODEL


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
