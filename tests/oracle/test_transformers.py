"""Hugging Face's transformers, the NumPy oracle and the stored references agree; needs the extra `reference`."""

import hashlib
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from grader import KIT
from grader.oracle.llama import Forward, Reference
from grader.oracle.references import ReferenceModel, load_references
from grader.oracle.variants import variant_model
from tests.oracle.agreement import disagreements
from tests.tools import not_run

SCRIPTS = KIT / "reference_outputs"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """reference_outputs/build.py, which runs transformers."""
    if find_spec("transformers") is None or find_spec("torch") is None:
        not_run("transformers", "make verify-references installs it")
    sys.path.insert(0, str(SCRIPTS))
    import build

    return build


def transformers_reference(build: ModuleType, model: ReferenceModel, reference: Reference) -> Reference:
    """The prompt's reference, from transformers this time."""
    prompts = [{"name": reference.name, "ids": reference.ids.tolist()}]
    ((_, tensors),) = build.compute(model.folder.parent, prompts)

    def forward(precision: str) -> Forward:
        arrays = (tensors[f"{precision}.{kind}"].float().numpy() for kind in ("logits", "states"))
        logits, states = arrays
        return Forward(logits, list(states))

    return Reference(reference.name, reference.ids, forward("float32"), forward("bf16"))


def test_oracle_agrees_for_tiny(build: ModuleType) -> None:
    model = load_references()
    for reference in model.references:
        assert disagreements(model.oracle, transformers_reference(build, model, reference)) == []


@pytest.mark.parametrize("seed", range(5))
def test_oracle_agrees_for_variants(build: ModuleType, tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    model = variant_model(np.random.default_rng(seed), folder)
    for reference in model.references:
        assert disagreements(model.oracle, transformers_reference(build, model, reference)) == []


def test_verify_accepts_the_stored_references(build: ModuleType) -> None:
    result = verify(SCRIPTS / "tiny")
    assert (result.returncode, result.stdout) == (0, "the reference outputs are those that transformers computes\n")


@pytest.mark.parametrize("recorded", [False, True])
def test_verify_notices_a_changed_logit(build: ModuleType, tmp_path: Path, recorded: bool) -> None:
    folder = Path(shutil.copytree(SCRIPTS / "tiny", tmp_path / "tiny"))
    with changed(folder / "expected" / "plain_text.safetensors") as tensors:
        logits = tensors["float32.logits"]
        logits[7, np.argmax(np.abs(logits[7]))] *= 1.01
    if recorded:
        record_hashes(folder)
    result = verify(folder)
    expected = (
        "plain_text, logits in float32: a value differs" if recorded else "expected/plain_text.safetensors: its sha"
    )
    assert result.returncode == 1
    assert result.stdout.startswith(expected)


@pytest.mark.parametrize("recorded", [False, True])
def test_verify_notices_a_flipped_weight_bit(build: ModuleType, tmp_path: Path, recorded: bool) -> None:
    folder = Path(shutil.copytree(SCRIPTS / "tiny", tmp_path / "tiny"))
    with changed(folder / "model" / "model.safetensors") as tensors:
        tensors["model.layers.2.mlp.down_proj.weight"].view(np.uint16)[100, 200] ^= 1 << 6
    if recorded:
        record_hashes(folder)
    result = verify(folder)
    assert result.returncode == 1
    assert ("differs by" if recorded else "model/model.safetensors: its sha256") in result.stdout


class changed:
    """The tensors of a safetensors file, written back at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors = safetensors.numpy.load_file(path)

    def __enter__(self) -> dict[str, Any]:
        return self.tensors

    def __exit__(self, *_: object) -> None:
        safetensors.numpy.save_file(self.tensors, self.path, metadata={"format": "pt"})


def record_hashes(folder: Path) -> None:
    """Make the manifest agree with the files as they are."""
    path = folder / "expected" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in manifest["files"]}
    path.write_text(json.dumps(manifest))


def verify(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPTS / "verify.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True)
