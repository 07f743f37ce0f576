"""Takes in any Llama model: a folder of Hugging Face's form, or one that the Hugging Face hub has.

What the engine cannot run is refused by name before anything large is read.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from given.config import ConfigError, LlamaConfig
from given.contracts import BF16

from grader.model import MODELS, ModelError
from grader.model.progress import progress
from grader.model.weight_shapes import weight_shapes

SMALL_FILES = ("config.json", "generation_config.json", "tokenizer*", "special_tokens_map.json", "*.jinja", "LICENSE*")
INDEX = "model.safetensors.index.json"
WEIGHT_FILES = ("model.safetensors", "model-*.safetensors", INDEX)
FLOATS = ("BF16", "F16", "F32")
"""What weights may be stored as; all become bf16."""


def is_hub_id(name: str) -> bool:
    """Whether a name has the form of an id of the Hugging Face hub, `owner/model`."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", name))


def short_name(name: str) -> str:
    """What a model is called in models/: the last part of its path or id, in small letters."""
    return Path(name).name.lower()


def check(folder: Path) -> None:
    """Raise ModelError, naming the reason, unless an engine of this kit can run the model in `folder`."""
    config = check_settings(folder)
    stored = {name: entry for file in weight_files(folder) for name, entry in read_header(file).items()}
    shapes = weight_shapes(config)
    if config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    biases = [name for name in stored if name.endswith(".bias")]
    if biases:
        raise ModelError(f"{folder} holds {biases[0]}: biases are not supported.")
    for name, shape in shapes.items():
        if name not in stored:
            raise ModelError(f"{folder} has no weight {name}: it is incomplete, or no Llama model.")
        kind, found = stored[name]
        if kind not in FLOATS:
            raise ModelError(f"{folder}: {name} is stored as {kind}; quantised weights are not supported.")
        if found != shape:
            raise ModelError(f"{folder}: {name} has shape {list(found)}; config.json says {list(shape)}.")


def check_settings(folder: Path) -> LlamaConfig:
    """The configuration, when it is one that is supported and there is a tokenizer. Raises ModelError."""
    try:
        config = LlamaConfig.from_folder(folder)
    except ConfigError as error:
        raise ModelError(f"{error}.") from None
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(
            f"{folder} has no tokenizer.json. Where it has tokenizer.model, transformers writes one: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
        )
    return config


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model: one, or the shards of its index. Raises ModelError."""
    index = folder / INDEX
    if not index.is_file():
        if not (folder / "model.safetensors").is_file():
            raise ModelError(f"{folder} holds neither model.safetensors nor {INDEX}; other formats are not supported.")
        return [folder / "model.safetensors"]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [folder / name for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} cannot be used ({error!r}): fetch the model again.") from None
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} is missing, but {INDEX} names it: fetch the model again.")
    return files


def read_header(file: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Stored type and shape of each tensor of a safetensors file. Raises ModelError."""
    try:
        with safetensors.safe_open(file, framework="numpy") as tensors:
            parts = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118  # no mapping
            return {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in parts.items()}
    except (OSError, safetensors.SafetensorError) as error:
        raise ModelError(f"{file} is no whole safetensors file ({error}): fetch the model again.") from None


def take_in(source: Path, folder: Path) -> None:
    """Write a checked model with bf16 weights into `folder`; `source` stays as it is. Raises ModelError."""
    for pattern in (*SMALL_FILES, INDEX):
        for file in source.glob(pattern):
            shutil.copy(file, folder / file.name)
    files = weight_files(source)
    with progress("Rounding the weights to bf16") as advance:
        for number, file in enumerate(files):
            advance(number, len(files))
            tensors = {name: round_to_bf16(tensor) for name, tensor in safetensors.numpy.load_file(file).items()}
            safetensors.numpy.save_file(tensors, folder / file.name, metadata={"format": "pt"})
        advance(len(files), len(files))


def round_to_bf16(tensor: Any) -> Any:
    return np.ascontiguousarray(tensor.astype(BF16))


def is_bf16(folder: Path) -> bool:
    """Whether all weights are stored as bf16 already."""
    return all(kind == "BF16" for file in weight_files(folder) for kind, _ in read_header(file).values())


# The hub


def download(model_id: str, target: Path) -> None:
    """Fetch a model of the Hugging Face hub into `target`; a download that broke off goes on there.

    Its settings come first: a model that is not supported is refused before its weights are fetched. Raises ModelError.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415  (extra model)

    print(f"Downloading {model_id} from the Hugging Face hub …")
    fetch(model_id, lambda: snapshot_download(model_id, local_dir=target, allow_patterns=[*SMALL_FILES, INDEX]))
    check_settings(target)
    fetch(model_id, lambda: snapshot_download(model_id, local_dir=target, allow_patterns=list(WEIGHT_FILES)))


def fetch(model_id: str, call: Callable[[], Any]) -> None:
    """Make a call of huggingface_hub; raises ModelError, which says what to do."""
    from huggingface_hub import errors  # noqa: PLC0415  (extra model)

    try:
        call()
    except errors.GatedRepoError:
        raise ModelError(
            f"{model_id} is gated: accept its licence at https://huggingface.co/{model_id}, make a token at "
            "https://huggingface.co/settings/tokens, run .venv/bin/hf auth login, then make model again."
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"the Hugging Face hub knows no model {model_id}, or it is private: check the name, or log in with "
            ".venv/bin/hf auth login."
        ) from None
    except errors.HFValidationError as error:
        raise ModelError(f"{model_id} is no id of the Hugging Face hub ({error}).") from None
    except (errors.HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise ModelError(
            f"downloading {model_id} failed ({reason[0]}): check the network and run make model again; what is here "
            f"already is kept in {MODELS.name}/."
        ) from None
