"""Compute the reference outputs of the tiny model with Hugging Face's transformers, on the CPU.

    python reference_outputs/build.py

For every prompt of prompts.json, tiny/expected/NAME.safetensors holds

    float32.logits, bf16.logits    [tokens, vocabulary]
    float32.states, bf16.states    [layers + 1, tokens, hidden]: the embedding's output, then the residual stream after
                                   each block, before the final norm

from the bf16 weights, once computed in float32 and once in bf16 with "eager" attention. tiny/expected/manifest.json
lists the prompts' ids, the versions of the libraries and the sha256 of every file of the model and of the references.
Nothing here comes from grader/: the references are what it is tested against.
"""

import hashlib
import json
import platform
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


def main() -> None:
    prompts = read_prompts(TINY)
    expected = TINY / "expected"
    expected.mkdir(exist_ok=True)
    for old in expected.iterdir():
        old.unlink()
    for name, tensors in compute(TINY, prompts):
        safetensors.torch.save_file(tensors, expected / f"{name}.safetensors")
        (expected / f"{name}.safetensors").chmod(0o644)  # the library writes files that only their owner can read
    files = [*(TINY / "model").iterdir(), *expected.iterdir()]
    manifest = {
        "prompts": prompts,
        "attention": "eager",
        "training_seeds": [run["seed"] for run in json.loads((TINY / "model" / "training.json").read_text())],
        "versions": versions(),
        "files": {file.relative_to(TINY).as_posix(): sha256(file) for file in sorted(files)},
    }
    (expected / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    size = sum(file.stat().st_size for file in expected.iterdir())
    print(f"{len(prompts)} prompts, {sum(len(prompt['ids']) for prompt in prompts)} tokens, {size / 1e6:.1f} MB")


def read_prompts(folder: Path) -> list[dict[str, Any]]:
    """The prompts of prompts.json, each {"name", "ids"} and, where it has one, its "text"."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
    prompts = json.loads((HERE / "prompts.json").read_text(encoding="utf-8"))
    return [{**prompt, "ids": prompt.get("ids") or tokenizer.encode(prompt["text"]).ids} for prompt in prompts]


def compute(folder: Path, prompts: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """(name, tensors) of each prompt, from the model in `folder`/model."""
    transformers.utils.logging.disable_progress_bar()
    models = {
        precision: transformers.LlamaForCausalLM.from_pretrained(
            folder / "model", dtype=dtype, attn_implementation="eager", local_files_only=True
        ).eval()
        for precision, dtype in PRECISIONS.items()
    }
    for prompt in prompts:
        tensors: dict[str, torch.Tensor] = {}
        for precision, model in models.items():
            logits, states = forward(model, prompt["ids"])
            tensors |= {f"{precision}.logits": logits, f"{precision}.states": states}
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
