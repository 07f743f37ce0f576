"""Compute the reference outputs of a model with Hugging Face's transformers, on the CPU.

    python reference_outputs/build.py [NAME]

NAME is `tiny`, or that of another folder beside this file with a prompts.json, whose model lies in models/NAME (make
model brings it). For every prompt, NAME/expected/PROMPT.safetensors holds

    float32.logits, bf16.logits    [tokens, vocabulary]
    float32.states, bf16.states    [layers + 1, tokens, hidden]: the embedding's output, then the residual stream after
                                   each block, before the final norm

from the bf16 weights, once computed in float32 and once in bf16 with "eager" attention; of models in models/, which are
larger, the logits of the last 8 tokens alone. NAME/expected/manifest.json lists the prompts' ids, the versions of the
libraries and the sha256 of the files of the model and of the references.
Nothing here comes from grader/: the references are what it is tested against.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import tokenizers
import torch
import transformers

HERE = Path(__file__).resolve().parent
TINY = HERE / "tiny"
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}


LAST = 8
"""Rows that are stored of a model in models/."""
MODEL_FILES = ("config.json", "model.safetensors")
"""What decides the logits of a model in models/; their hashes are recorded."""


def main() -> None:
    folder = HERE / sys.argv[1] if len(sys.argv) > 1 else TINY
    prompts = read_prompts(folder)
    expected = folder / "expected"
    expected.mkdir(exist_ok=True)
    for old in expected.iterdir():
        old.unlink()
    for name, tensors in compute(folder, prompts):
        safetensors.torch.save_file(tensors, expected / f"{name}.safetensors")
        (expected / f"{name}.safetensors").chmod(0o644)  # the library writes files that only their owner can read
    manifest: dict[str, Any] = {"prompts": prompts, "attention": "eager"}
    if folder == TINY:
        runs = json.loads((folder / "model" / "training.json").read_text())
        manifest["training_seeds"] = [run["seed"] for run in runs]
    if not is_whole(folder):
        manifest["last"] = LAST
    manifest |= {"versions": versions(), "files": {name: sha256(locate(folder, name)) for name in file_names(folder)}}
    (expected / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    size = sum(file.stat().st_size for file in expected.iterdir())
    print(f"{len(prompts)} prompts, {sum(len(prompt['ids']) for prompt in prompts)} tokens, {size / 1e6:.1f} MB")


def model_dir(folder: Path) -> Path:
    """Where the model of a folder of references is."""
    inside = folder / "model"
    return inside if inside.is_dir() else HERE.parent / "models" / folder.name


def is_whole(folder: Path) -> bool:
    """Whether all rows and the hidden states are stored, not the last rows alone."""
    return model_dir(folder).parent == folder


def file_names(folder: Path) -> list[str]:
    """The files whose hashes the manifest records: all in `folder`, and those of its model, as model/NAME."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names |= {f"model/{name}" for name in MODEL_FILES}
    return sorted(names - {"expected/manifest.json"})


def locate(folder: Path, name: str) -> Path:
    """The path of a recorded file."""
    return model_dir(folder) / name.removeprefix("model/") if name.startswith("model/") else folder / name


def read_prompts(folder: Path) -> list[dict[str, Any]]:
    """The prompts of prompts.json, each {"name", "ids"} and, where it has one, its "text" or its "chat"."""
    own = folder / "prompts.json"
    prompts = json.loads((own if own.is_file() else HERE / "prompts.json").read_text(encoding="utf-8"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir(folder), local_files_only=True)

    def ids(prompt: dict[str, Any]) -> list[int]:
        if "chat" in prompt:
            text = tokenizer.apply_chat_template(prompt["chat"], add_generation_prompt=True, tokenize=False)
            return list(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)
        return prompt.get("ids") or list(tokenizer.backend_tokenizer.encode(prompt["text"]).ids)

    return [{**prompt, "ids": ids(prompt)} for prompt in prompts]


def compute(folder: Path, prompts: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """(name, tensors) of each prompt."""
    transformers.utils.logging.disable_progress_bar()
    models = {
        precision: transformers.LlamaForCausalLM.from_pretrained(
            model_dir(folder), dtype=dtype, attn_implementation="eager", local_files_only=True
        ).eval()
        for precision, dtype in PRECISIONS.items()
    }
    for prompt in prompts:
        tensors: dict[str, torch.Tensor] = {}
        for precision, model in models.items():
            logits, states = forward(model, prompt["ids"])
            if is_whole(folder):
                tensors |= {f"{precision}.logits": logits, f"{precision}.states": states}
            else:
                tensors[f"{precision}.logits"] = logits[-LAST:].clone()
        yield prompt["name"], tensors


@torch.no_grad()
def forward(model: Any, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [tokens, vocabulary] and hidden states [layers + 1, tokens, hidden] in the model's own precision."""
    with recorded_outputs([model.model.embed_tokens, *model.model.layers]) as states:
        logits = model(torch.tensor([ids]), use_cache=False).logits
    return logits[0].contiguous(), torch.cat(states)


@contextmanager
def recorded_outputs(modules: list[torch.nn.Module]) -> Iterator[list[torch.Tensor]]:
    """Collects what the modules return, [1, tokens, hidden] each, in the order of their calls."""
    outputs: list[torch.Tensor] = []

    def record(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    handles = [module.register_forward_hook(record) for module in modules]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def versions() -> dict[str, str]:
    packages = (torch, transformers, tokenizers, safetensors)
    return {"python": platform.python_version()} | {package.__name__: package.__version__ for package in packages}


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
