"""Reads model weights: the safetensors format, sharded models, and the bf16 number format.

Everything here runs on the host, and reads the files without the library of that name.
"""

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from given.config import LlamaConfig

DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


class SafetensorsError(ValueError):
    """A weight file is malformed or incomplete; the message names the file and, where there is one, the tensor."""


def bf16_to_float32(bits: np.ndarray) -> np.ndarray:
    """The float32 values (same shape) of bf16 numbers given as uint16 bit patterns. Exact."""
    # s01.1: a bf16 is the upper half of a float32
    return np.asarray(bits.astype(np.uint32) << 16).view(np.float32)


def float32_to_bf16(values: np.ndarray) -> np.ndarray:
    """The uint16 bit patterns (same shape) of float32 values rounded to bf16, to the nearest, ties to even.

    Infinities and signed zeros stay, values that round past the largest bf16 become infinite, NaN stays NaN.
    """
    # s01.1: add just under half a step, and 1 more when the kept part is odd; NaN apart
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(values.shape)
    # Half a step would round ties up. A carry runs into the exponent, which is the next larger number.
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # The sum could turn a NaN into infinity: keep the sign and set the bit that marks a quiet NaN instead.
    return np.where(np.isnan(values), (bits >> 16) | 0x0040, rounded).astype(np.uint16)


def load_safetensors(path: str | Path) -> Mapping[str, np.ndarray]:
    """All tensors of one safetensors file by name, as read-only views of the mapped file: nothing is copied.

    DTYPES has the NumPy type for each name of a dtype.
    Raises SafetensorsError for a file that is not exactly a header and the bytes that it describes.
    """
    # s01.2: map the file, check the header, make one view a tensor
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        if size < 8:
            raise SafetensorsError(f"{path}: {size} bytes are too few for a safetensors file")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(data[:8], "little")
    if start > size:
        raise SafetensorsError(f"{path}: the header should end at byte {start}, the file ends at byte {size}")
    header = _parse_header(data[8:start], path)

    tensors: dict[str, np.ndarray] = {}
    position = 0  # where the tensor before ended, counted from the end of the header
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if begin != position:
            problem = "overlaps the tensor before it" if begin < position else "leaves a gap before it"
            raise SafetensorsError(f"{path}: tensor {name!r} at bytes {begin} to {end} {problem}")
        if start + end > size:
            raise SafetensorsError(f"{path}: tensor {name!r} ends {start + end - size} bytes past the end of the file")
        shape, dtype = entry["shape"], DTYPES[entry["dtype"]]
        flat = np.frombuffer(data, dtype, (end - begin) // dtype.itemsize, start + begin)
        try:
            tensors[name] = flat.reshape(shape)
        except ValueError as error:  # more than 64 dimensions, or 0 elements in sizes that overflow
            raise SafetensorsError(f"{path}: tensor {name!r} has the unusable shape {shape} ({error})") from None
        position = end
    if start + position != size:
        raise SafetensorsError(f"{path}: {size - start - position} bytes follow the last tensor")
    return tensors


def _parse_header(text: bytes, path: str | Path) -> dict[str, dict[str, Any]]:
    """The tensors' entries, each with a known dtype and a shape that needs exactly the bytes of its offsets."""

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise SafetensorsError(f"{path}: {twice!r} appears twice in the header")
        return entries

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=without_duplicates)
    except SafetensorsError:
        raise
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"{path}: the header is not valid JSON ({error})") from None
    if not isinstance(header, dict):
        raise SafetensorsError(f"{path}: the header is a JSON {type(header).__name__}, not an object")
    metadata = header.pop("__metadata__", {})  # free text, no tensor
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise SafetensorsError(f"{path}: __metadata__ is not an object of strings")
    for name, entry in header.items():
        if problem := _entry_problem(entry):
            raise SafetensorsError(f"{path}: tensor {name!r} {problem}")
    return header


def _entry_problem(entry: Any) -> str | None:
    """What is wrong with one tensor's entry of the header, or None."""
    if not isinstance(entry, dict):
        return "is not described by an object"
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPES:
        return f"has the unknown dtype {dtype!r}"
    if not _is_sizes(shape):
        return f"has the malformed shape {shape!r}"
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return f"has malformed data_offsets {offsets!r}"
    expected, found = DTYPES[dtype].itemsize, offsets[1] - offsets[0]
    for length in shape:
        expected *= length
    if expected != found:
        return f"of shape {shape} and dtype {dtype} needs {expected} bytes, its data_offsets span {found}"
    return None


def _is_sizes(value: Any) -> bool:
    """Whether a JSON value is a list of integers ≥ 0; True and False, integers to Python, are not."""
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)


def load_model_weights(model_dir: str | Path) -> dict[str, np.ndarray]:
    """All weights of a model's folder: model.safetensors, or the shards that model.safetensors.index.json lists.

    `lm_head.weight` is always there: with a tied head it is the same array as `model.embed_tokens.weight`.
    Raises SafetensorsError for missing files or tensors, ConfigError for a config.json that cannot be used.
    """
    # s01.3: one file or several, then the head
    folder = Path(model_dir)
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weights = _load_shards(folder, index)
    elif (folder / "model.safetensors").exists():
        weights = dict(load_safetensors(folder / "model.safetensors"))
    else:
        raise SafetensorsError(f"{folder}: holds neither model.safetensors nor {index.name}")

    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    tied = LlamaConfig.from_folder(folder).tie_word_embeddings
    for name in (embedding,) if tied else (embedding, head):
        if name not in weights:
            raise SafetensorsError(f"{folder}: has no tensor {name!r}")
    if tied:
        weights[head] = weights[embedding]
    return weights


def _load_shards(folder: Path, index: Path) -> dict[str, np.ndarray]:
    """Every tensor of the index's weight_map (name → file), from the file that it names."""
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        paths = {file: folder / file for file in weight_map.values()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SafetensorsError(f"{index}: has no weight_map from tensors to files ({error!r})") from None
    shards: dict[str, Mapping[str, np.ndarray]] = {}
    for file, path in paths.items():
        if not path.is_file():
            raise SafetensorsError(f"{index}: names the file {file!r}, which does not exist")
        shards[file] = load_safetensors(path)
    for name, file in weight_map.items():
        if name not in shards[file]:
            raise SafetensorsError(f"{paths[file]}: has no tensor {name!r}, which {index.name} places there")
    return {name: shards[file][name] for name, file in weight_map.items()}
