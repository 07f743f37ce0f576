"""`python -m grader model [NAME|PATH|HUB_ID]`: bring a model into models/, whole or not at all."""

import argparse
import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from grader.commands import Subparsers
from grader.model import DEFAULT_MODEL, MODELS, ModelError, hugging_face, smollm2

PACKAGES = ("gguf", "huggingface_hub", "jinja2")
HUB_ID = "hub-id.txt"
"""Records, in the folder of a model from the hub, which one it is."""


def add_model(commands: Subparsers) -> None:
    parser = commands.add_parser("model", help="bring a model into models/")
    parser.set_defaults(run=run_model)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, metavar="NAME|FOLDER|HUB_ID")


def run_model(options: argparse.Namespace) -> int:
    """Bring the model that `options.model` names; one that is here already stays as it is."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(f"the Python package {missing[0]} is not installed: run make setup EXTRAS=model.")
    folder = bring(options.model)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    print(f"{folder} is ready ({size / 1e6:,.0f} MB of weights). Try: make chat MODEL={folder.name}")
    return 0


def bring(name: str, models: Path = MODELS) -> Path:
    """The folder below `models` that holds the model `name`, brought there if need be. Raises ModelError."""
    models.mkdir(exist_ok=True)
    target = models / hugging_face.short_name(name)
    if name == DEFAULT_MODEL:
        return target if target.exists() else install(target, smollm2.fetch)
    if Path(name).is_dir():
        return adopt(Path(name).resolve(), target)
    if target.exists() and name in (target.name, hub_id(target)):
        return target
    if not hugging_face.is_hub_id(name):
        raise ModelError(
            f"there is no model {name!r}: name {DEFAULT_MODEL}, a folder, or an id of the Hugging Face hub such as "
            "meta-llama/Llama-3.2-1B-Instruct."
        )
    refuse_other(target)
    part = models / f".{target.name}.part"  # stays when the download breaks off, so that it can go on
    hugging_face.download(name, part)
    hugging_face.check(part)
    if hugging_face.is_bf16(part):
        part.rename(target)
    else:
        install(target, lambda folder: hugging_face.take_in(part, folder))
        shutil.rmtree(part)
    (target / HUB_ID).write_text(f"{name}\n", encoding="utf-8")
    return target


def hub_id(folder: Path) -> str:
    """Which model of the hub a folder holds; empty when it is from elsewhere."""
    file = folder / HUB_ID
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def adopt(source: Path, target: Path) -> Path:
    """A link to the folder, or a copy in bf16 when its weights are stored as other floating-point numbers.

    Raises ModelError.
    """
    hugging_face.check(source)
    if target.exists() and target.resolve() == source:
        return target
    refuse_other(target)
    if not hugging_face.is_bf16(source):
        return install(target, lambda folder: hugging_face.take_in(source, folder))
    with contextlib.suppress(FileNotFoundError):
        target.unlink()  # a link to a folder that is gone
    target.symlink_to(source)
    return target


def refuse_other(target: Path) -> None:
    """Raise ModelError when there is a model at `target` already."""
    if target.exists():
        raise ModelError(f"{target} is another model of that name: move or remove it first.")


def install(target: Path, fill: Callable[[Path], None]) -> Path:
    """Let `fill` write a folder and give it its name only when all is in it."""
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(part)
        part.chmod(0o755)
        for file in part.iterdir():
            file.chmod(0o644)
        os.rename(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target
