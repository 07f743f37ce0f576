"""Reads the configuration of a Llama model's folder: config.json and, where there is one, generation_config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST_HEAD = 128
"""The kernels' contracts promise no larger head."""


class ConfigError(ValueError):
    """A configuration file is missing, malformed, or describes a model that this engine does not run."""


@dataclass(frozen=True)
class Llama3RopeScaling:
    """How Llama 3 stretches the rotary frequencies: wavelengths above original / low_freq_factor are divided by
    `factor`, those below original / high_freq_factor stay, those between are blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and constants of a Llama model; `eos_token_ids` may be empty, `bos_token_id` is None where none is set."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Llama3RopeScaling | None
    tie_word_embeddings: bool
    max_position_embeddings: int
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None

    @classmethod
    def from_folder(cls, model_dir: str | Path) -> "LlamaConfig":
        """Read `model_dir`/config.json; generation_config.json, where present, decides the end-of-sequence ids.

        Raises ConfigError, naming file and key, for what is missing, of the wrong type, or not supported.
        """
        folder = Path(model_dir)
        config = _Settings.read(folder / "config.json")
        _refuse_other_models(config)
        generation = folder / "generation_config.json"
        tokens = _Settings.read(generation) if generation.exists() else config
        rope = config.section("rope_parameters", config.section("rope_scaling"))
        hidden_size, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
        result = cls(
            hidden_size=hidden_size,
            intermediate_size=config.size("intermediate_size"),
            num_layers=config.size("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=config.size("num_key_value_heads", num_heads),
            head_dim=config.size("head_dim", hidden_size // num_heads),
            vocab_size=config.size("vocab_size"),
            rms_norm_eps=config.number("rms_norm_eps", 1e-6),
            rope_theta=rope.number("rope_theta", config.number("rope_theta", 10000.0)),
            rope_scaling=_rope_scaling(rope),
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            max_position_embeddings=config.size("max_position_embeddings", 2048),
            eos_token_ids=tokens.ids("eos_token_id") or config.ids("eos_token_id"),
            bos_token_id=next(iter(config.ids("bos_token_id")), None),
        )
        if result.num_heads % result.num_kv_heads:
            raise ConfigError(
                f"{config.file}: num_attention_heads = {result.num_heads} is no multiple of "
                f"num_key_value_heads = {result.num_kv_heads}"
            )
        if result.head_dim % 2:
            raise ConfigError(f"{config.file}: head_dim = {result.head_dim} is odd; rotary pairs need an even one")
        if result.head_dim > LARGEST_HEAD:
            raise ConfigError(f"{config.file}: head_dim = {result.head_dim} is over {LARGEST_HEAD}, the largest here")
        return result


@dataclass(frozen=True)
class _Settings:
    """A JSON object and the file it came from, for messages that name both."""

    file: Path
    values: Mapping[str, Any]

    @classmethod
    def read(cls, file: Path) -> "_Settings":
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{file}: is not valid JSON ({error})") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{file}: holds a {type(values).__name__}, wanted an object of settings")
        return cls(file, values)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`; null counts as absent."""
        value = self.values.get(key)
        return default if value is None else value

    def section(self, key: str, default: "_Settings | None" = None) -> "_Settings":
        """The object under `key`; without one `default`, without that an empty one."""
        value = self.get(key)
        if not isinstance(value, dict | None):
            raise ConfigError(f"{self.file}: {key} = {value!r}, wanted an object of settings")
        return _Settings(self.file, value) if value else default or _Settings(self.file, {})

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if type(value) is not int or not 0 < value < 2**31:
            raise ConfigError(f"{self.file}: {key} {_found(value)}, wanted a positive integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            raise ConfigError(f"{self.file}: {key} {_found(value)}, wanted a positive number")
        return float(value)

    def ids(self, key: str) -> tuple[int, ...]:
        """Token ids given as one integer or as a list of them."""
        value = self.get(key, [])
        ids = value if isinstance(value, list) else [value]
        if any(type(token) is not int or token < 0 for token in ids):
            raise ConfigError(f"{self.file}: {key} {_found(value)}, wanted a token id or a list of them")
        return tuple(ids)


def _found(value: Any) -> str:
    return "is missing" if value is None else f"= {value!r}"


def _refuse_other_models(config: _Settings) -> None:
    """Settings that would change the computation, and that this engine would silently ignore."""
    supported = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "partial_rotary_factor": 1.0,
    }
    for key, wanted in supported.items():
        if config.get(key, wanted) != wanted:
            raise ConfigError(f"{config.file}: {key} = {config.get(key)!r} is not supported, only {wanted!r}")
    features = {
        "quantization_config": "quantised weights",
        "sliding_window": "attention to a sliding window",
        "num_local_experts": "a mixture of experts",
        "num_experts": "a mixture of experts",
        "n_routed_experts": "a mixture of experts",
    }
    for key, feature in features.items():
        if config.get(key):
            raise ConfigError(f"{config.file}: {key} asks for {feature}, which is not supported")


def _rope_scaling(rope: _Settings) -> Llama3RopeScaling | None:
    """Newer files say `rope_type`, older ones `type`; "default" means no scaling."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ConfigError(f"{rope.file}: rope_type = {kind!r} is not supported, only 'default' and 'llama3'")
    scaling = Llama3RopeScaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_position_embeddings=rope.size("original_max_position_embeddings"),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise ConfigError(f"{rope.file}: high_freq_factor must be larger than low_freq_factor, not {scaling}")
    return scaling
