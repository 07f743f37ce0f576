"""Turns a GGUF file of a Llama model into a folder of Hugging Face's form: bf16 safetensors, config and tokenizer."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import safetensors.numpy
from given.contracts import BF16
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from grader.model import ModelError

SUPPORTED = ("F32", "F16", "BF16", "Q8_0", "Q4_1")
"""Tensor formats that were compared with transformers' reading of the same file."""

CONTROL = 3
"""Type of the tokens that stand for no text, in tokenizer.ggml.token_type."""

_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


class Metadata:
    """The key-value part of a GGUF file."""

    def __init__(self, file: Path, fields: Mapping[str, Any]) -> None:
        self._file = file
        self._fields = fields

    def get(self, key: str, kind: type) -> Any:
        """The value of `key`; raises ModelError when it is missing or not of this kind."""
        value = self._fields[key].contents() if key in self._fields else None
        if not isinstance(value, kind):
            found = "is missing" if value is None else f"is a {type(value).__name__}, not a {kind.__name__}"
            raise ModelError(f"{self._file.name}: {key} {found}.")
        return value


def convert(file: Path, folder: Path, progress: Callable[[int, int], None]) -> None:
    """Write the model of `file` into `folder`, which exists; `progress` gets tensors done and tensors in all.

    Raises ModelError for a file that is damaged, or no Llama with a byte-level BPE tokenizer.
    """
    try:
        reader = gguf.GGUFReader(file)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ModelError(f"{file.name} cannot be read as a GGUF file ({error}).") from None
    metadata = Metadata(file, reader.fields)
    if (architecture := metadata.get("general.architecture", str)) != "llama":
        raise ModelError(f"{file.name} is a model of the architecture {architecture!r}, not of a Llama.")
    config = make_config(metadata, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    weights: dict[str, NDArray[Any]] = {}
    for index, tensor in enumerate(reader.tensors):
        name = hugging_face_name(tensor.name)
        weights[name] = read_tensor(tensor, config)
        progress(index + 1, len(reader.tensors))
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    make_tokenizer(metadata).save(str(folder / "tokenizer.json"))
    tokens = special_tokens(metadata)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {key: config[key] for key in ("bos_token_id", "eos_token_id")})
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config["max_position_embeddings"], **tokens},
    )
    template = metadata.get("tokenizer.chat_template", str)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


# Weights


def hugging_face_name(name: str) -> str:
    """The name that Hugging Face gives a tensor of a GGUF file. Raises ModelError for an unknown one."""
    match name.split("."):
        case ["blk", layer, part, "weight"] if part in _BLOCK:
            return f"model.layers.{layer}.{_BLOCK[part]}.weight"
    if name not in _WHOLE:
        raise ModelError(f"the GGUF file holds the tensor {name}, which no Llama without biases has.")
    return _WHOLE[name]


def read_tensor(tensor: Any, config: Mapping[str, Any]) -> NDArray[Any]:
    """A tensor as bf16, its rows in Hugging Face's order. Raises ModelError for a format that was never tested."""
    if (kind := tensor.tensor_type.name) not in SUPPORTED:
        raise ModelError(f"tensor {tensor.name} is stored as {kind}; only {', '.join(SUPPORTED)} are supported.")
    values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    part = tensor.name.split(".")[-2]
    return (unpermute(values, config[heads[part]]) if part in heads else values).astype(BF16)


def unpermute(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of a query or key projection [heads · head_dim, hidden], from GGUF's order to Hugging Face's.

    GGUF turns neighbours (2i, 2i + 1) of a head, Hugging Face halves (i, i + head_dim / 2).
    """
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


# Configuration


def make_config(metadata: Metadata, *, tied: bool) -> dict[str, Any]:
    """The content of config.json."""
    size = {
        name: metadata.get(f"llama.{key}", int)
        for name, key in {
            "hidden_size": "embedding_length",
            "intermediate_size": "feed_forward_length",
            "num_hidden_layers": "block_count",
            "num_attention_heads": "attention.head_count",
            "num_key_value_heads": "attention.head_count_kv",
            "head_dim": "rope.dimension_count",
            "vocab_size": "vocab_size",
            "max_position_embeddings": "context_length",
        }.items()
    }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **size,
        "hidden_act": "silu",
        "rms_norm_eps": shortest(metadata.get("llama.attention.layer_norm_rms_epsilon", float)),
        "rope_theta": shortest(metadata.get("llama.rope.freq_base", float)),
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id", int),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id", int),
        "torch_dtype": "bfloat16",
    }


def shortest(value: float) -> float:
    """The shortest decimal number that is this float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# Tokenizer


def make_tokenizer(metadata: Metadata) -> Tokenizer:
    """The byte-level BPE tokenizer of the file's vocabulary and merges; digits stand alone, as SmolLM has it."""
    kind = metadata.get("tokenizer.ggml.model", str), metadata.get("tokenizer.ggml.pre", str)
    if kind != ("gpt2", "smollm"):
        raise ModelError(f"the tokenizer {' with pre-tokenizer '.join(kind)} is not supported, only SmolLM's.")
    tokens = metadata.get("tokenizer.ggml.tokens", list)
    merges = [tuple(merge.split(" ")) for merge in metadata.get("tokenizer.ggml.merges", list)]
    try:
        tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"the GGUF file's vocabulary and merges are no tokenizer ({error}).") from None
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    types = metadata.get("tokenizer.ggml.token_type", list)
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


def special_tokens(metadata: Metadata) -> dict[str, str]:
    """Texts of the tokens with a role, by their names in tokenizer_config.json."""
    tokens = metadata.get("tokenizer.ggml.tokens", list)
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    return {role: tokens[metadata.get(f"tokenizer.ggml.{key}_token_id", int)] for role, key in roles.items()}
