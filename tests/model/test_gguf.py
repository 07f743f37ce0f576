"""A GGUF file becomes a folder of Hugging Face's form, value by value; what cannot be converted is named."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import tokenizers

pytest.importorskip("gguf", reason="gguf is not installed: make setup EXTRAS=model")

import gguf
from given.config import LlamaConfig

from grader.model import ModelError
from grader.model.gguf_model import convert
from grader.model.hugging_face import check
from grader.serving.chat_template import find_template
from tests.model import made_up


@pytest.fixture
def weights() -> made_up.Arrays:
    return made_up.draw(np.random.default_rng(3))


def converted(folder: Path, weights: made_up.Arrays, **changes: Any) -> Path:
    target = folder / "model"
    target.mkdir()
    convert(made_up.write_gguf(folder / "file.gguf", weights, **changes), target, lambda done, total: None)
    return target


def test_weights(tmp_path: Path, weights: made_up.Arrays) -> None:
    folder = converted(tmp_path, weights)
    check(folder)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    wanted = made_up.expected(weights)
    assert tensors.keys() == wanted.keys()
    for name, tensor in tensors.items():
        assert np.array_equal(tensor.view(np.uint16), wanted[name].astype(ml_dtypes.bfloat16).view(np.uint16)), name


def test_configuration(tmp_path: Path, weights: made_up.Arrays) -> None:
    folder = converted(tmp_path, weights)
    config = LlamaConfig.from_folder(folder)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.num_layers) == (4, 2, 16, 2)
    assert (config.rms_norm_eps, config.rope_theta, config.tie_word_embeddings) == (1e-5, 1e5, True)
    assert (config.eos_token_ids, config.bos_token_id, config.max_position_embeddings) == ((2,), 1, 512)
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
    weights["output.weight"] = weights["token_embd.weight"]
    (tmp_path / "untied").mkdir()
    untied = converted(tmp_path / "untied", weights)
    assert not LlamaConfig.from_folder(untied).tie_word_embeddings


def test_tokenizer(tmp_path: Path, weights: made_up.Arrays) -> None:
    folder = converted(tmp_path, weights)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def tokens(text: str) -> list[str]:
        return list(tokenizer.encode(text).tokens)

    assert tokens("the the") == ["the", "Ġthe"]
    assert tokens("the12") == ["the", "1", "2"]  # a digit is a token of its own, whatever the merges say
    assert tokens("<|im_start|>t\n") == ["<|im_start|>", "t", "Ċ"]
    assert tokenizer.decode(tokenizer.encode("the the <|im_end|>").ids) == "the the "
    template = find_template(folder)
    assert template
    assert template.render([{"role": "user", "content": "the"}]) == "the"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"architecture": "qwen2"}, "a model of the architecture 'qwen2', not of a Llama"),
        ({"block_count": None}, "llama.block_count is missing"),
        ({"pre": "llama-bpe"}, "pre-tokenizer llama-bpe is not supported"),
        ({"merges": ["z unknown"]}, "vocabulary and merges are no tokenizer"),
        ({"blk.1.ffn_up.weight": gguf.GGMLQuantizationType.Q4_0}, "blk.1.ffn_up.weight is stored as Q4_0"),
    ],
)
def test_what_is_refused(tmp_path: Path, weights: made_up.Arrays, changes: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ModelError) as caught:
        converted(tmp_path, weights, **changes)
    assert wanted in str(caught.value)


def test_unknown_tensors(tmp_path: Path, weights: made_up.Arrays) -> None:
    weights["blk.0.attn_q.bias"] = np.zeros(64, np.float32)
    with pytest.raises(ModelError, match=r"holds the tensor blk\.0\.attn_q\.bias"):
        converted(tmp_path, weights)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no such file", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64])
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"file\.gguf cannot be read as a GGUF file"):
        convert(tmp_path / "file.gguf", tmp_path, lambda done, total: None)
