"""config.json as different versions of transformers write it, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from given.config import ConfigError, Llama3RopeScaling, LlamaConfig

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 288,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 24,
    "vocab_size": 1024,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "max_position_embeddings": 2048,
    "eos_token_id": 2,
    "bos_token_id": 0,
}
SCALING = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}


def read(folder: Path, generation: dict[str, Any] | None = None, **changes: Any) -> LlamaConfig:
    values = {key: value for key, value in {**CONFIG, **changes}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return LlamaConfig.from_folder(str(folder))


def test_every_field(tmp_path: Path) -> None:
    assert read(tmp_path) == LlamaConfig(
        288, 768, 4, 12, 4, 24, 1024, 1e-5, 500000.0, None, True, 2048, (2,), 0
    )  # fmt: skip


def test_both_spellings_of_rope_settings(tmp_path: Path) -> None:
    scaling = Llama3RopeScaling(32.0, 1.0, 4.0, 256)
    older = read(tmp_path, rope_scaling={"type": "llama3", **SCALING})
    old = read(tmp_path, rope_scaling={"rope_type": "llama3", **SCALING})
    new = read(tmp_path, rope_theta=..., rope_parameters={"rope_theta": 500000.0, "rope_type": "llama3", **SCALING})
    assert older == old == new
    assert new.rope_scaling == scaling
    unscaled = read(tmp_path, rope_theta=..., rope_parameters={"rope_theta": 100000, "rope_type": "default"})
    assert (unscaled.rope_theta, unscaled.rope_scaling) == (100000.0, None)
    assert read(tmp_path, rope_scaling=None).rope_scaling is None


def test_end_of_sequence_ids(tmp_path: Path) -> None:
    assert read(tmp_path, eos_token_id=[3, 5]).eos_token_ids == (3, 5)
    assert read(tmp_path, eos_token_id=None).eos_token_ids == ()
    assert read(tmp_path, {"eos_token_id": [7, 8, 9]}).eos_token_ids == (7, 8, 9)
    assert read(tmp_path, {"eos_token_id": 7}).eos_token_ids == (7,)
    assert read(tmp_path, {"temperature": 0.6}).eos_token_ids == (2,)
    assert read(tmp_path, bos_token_id=None).bos_token_id is None


def test_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, num_key_value_heads=..., head_dim=..., tie_word_embeddings=..., rope_theta=...)
    assert (config.num_kv_heads, config.head_dim, config.tie_word_embeddings) == (12, 24, False)
    assert config.rope_theta == 10000.0
    assert read(tmp_path, head_dim=None).head_dim == 24


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"hidden_size": ...}, "hidden_size is missing, wanted a positive integer"),
        ({"vocab_size": 0}, "vocab_size = 0"),
        ({"num_hidden_layers": 4.0}, "num_hidden_layers = 4.0"),
        ({"num_attention_heads": True}, "num_attention_heads = True"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps = '1e-5', wanted a positive number"),
        ({"rope_theta": float("inf")}, "rope_theta = inf"),
        ({"num_key_value_heads": 5}, "num_attention_heads = 12 is no multiple of num_key_value_heads = 5"),
        ({"head_dim": 25}, "head_dim = 25 is odd"),
        ({"eos_token_id": "2"}, "eos_token_id = '2'"),
        ({"eos_token_id": [2, -1]}, "eos_token_id"),
        ({"model_type": "qwen2"}, "model_type = 'qwen2' is not supported, only 'llama'"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias = True is not supported, only False"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5 is not supported"),
        ({"quantization_config": {"quant_method": "awq"}}, "asks for quantised weights"),
        ({"sliding_window": 4096}, "sliding_window asks for attention to a sliding window"),
        ({"num_local_experts": 8}, "num_local_experts asks for a mixture of experts"),
        ({"num_experts": 8}, "mixture of experts"),
        ({"head_dim": 256}, "head_dim = 256 is over 128"),
        ({"rope_scaling": [1]}, "rope_scaling = [1], wanted an object"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type = 'yarn' is not supported"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type = 'linear' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor is missing"),
        ({"rope_scaling": {"rope_type": "llama3", **SCALING, "high_freq_factor": 1}}, "high_freq_factor"),
    ],
)
def test_what_is_refused_is_named(tmp_path: Path, changes: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, **changes)
    assert wanted in str(caught.value)
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "\x00"])
def test_files_that_are_no_settings(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.json"):
        LlamaConfig.from_folder(tmp_path)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        LlamaConfig.from_folder(tmp_path / "absent")
