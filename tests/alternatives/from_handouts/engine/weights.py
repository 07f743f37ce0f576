"""An alternative solution, written from the handouts alone: safetensors files, sharded models, and bf16."""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
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

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


class SafetensorsError(ValueError):
    """A weight file is malformed or incomplete; the message names the file and, where there is one, the tensor."""


def bf16_to_float32(bits: np.ndarray) -> np.ndarray:
    """The float32 values (same shape) of bf16 numbers given as uint16 bit patterns. Exact."""
    wide = np.left_shift(np.asarray(bits, np.uint16), 16, dtype=np.uint32)
    return np.asarray(wide).view(np.float32)


def float32_to_bf16(values: np.ndarray) -> np.ndarray:
    """The uint16 bit patterns (same shape) of float32 values rounded to bf16, to the nearest, ties to even."""
    bits = np.asarray(np.asarray(values, np.float32)).view(np.uint32)
    upper, lower = bits >> 16, bits & 0xFFFF
    up = (lower > 0x8000) | ((lower == 0x8000) & (upper % 2 == 1))
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.asarray(np.where(is_nan, upper | 0x0040, upper + up).astype(np.uint16))


@dataclass(frozen=True)
class _Entry:
    """What the header says about one tensor."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int

    @classmethod
    def parse(cls, path: Path, name: str, fields: Any) -> "_Entry":
        def refuse(problem: str) -> SafetensorsError:
            return SafetensorsError(f"{path}: tensor {name!r}: {problem}")

        if not isinstance(fields, dict):
            raise refuse("its entry is not an object")
        dtype, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
        if not isinstance(dtype, str):
            raise refuse(f"dtype is {dtype!r}, wanted a string")
        if dtype not in DTYPES:
            raise refuse(f"the dtype {dtype!r} is not known")
        if not _are_sizes(shape):
            raise refuse(f"shape is {shape!r}, wanted a list of sizes")
        if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise refuse(f"data_offsets is {offsets!r}, wanted [begin, end]")
        entry = cls(name, DTYPES[dtype], tuple(shape), *offsets)
        wanted = math.prod(entry.shape) * entry.dtype.itemsize
        if wanted != entry.end - entry.begin:
            raise refuse(f"has {entry.end - entry.begin} bytes, but its shape {shape} and {dtype} need {wanted}")
        return entry

    def view(self, path: Path, data: np.ndarray) -> np.ndarray:
        try:
            return data[self.begin : self.end].view(self.dtype).reshape(self.shape)
        except ValueError as error:  # more dimensions, or larger ones, than NumPy has
            raise SafetensorsError(f"{path}: tensor {self.name!r}: no array can have this shape: {error}") from None


def _are_sizes(value: Any) -> bool:
    """Whether it is a list of integers from 0 on; JSON's true is none."""
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)


def load_safetensors(path: str | Path) -> Mapping[str, np.ndarray]:
    """All tensors of one safetensors file by name, as read-only views of the mapped file: nothing is copied.

    Raises SafetensorsError for a file that is not exactly a header and the bytes that it describes.
    """
    path = Path(path)
    size = path.stat().st_size
    if size < 8:
        raise SafetensorsError(f"{path}: has {size} bytes, too short for the header's length")
    file = np.memmap(path, np.uint8, mode="r")
    (header_length,) = struct.unpack("<Q", file[:8].tobytes())
    if 8 + header_length > size:
        raise SafetensorsError(f"{path}: the header of {header_length} bytes is cut off, the file has {size}")
    header = _parse_object(path, file[8 : 8 + header_length].tobytes())
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise SafetensorsError(f"{path}: __metadata__ must be an object of strings, not {metadata!r}")
    entries = [_Entry.parse(path, name, fields) for name, fields in header.items()]
    data = np.asarray(file[8 + header_length :])
    _check_places(path, entries, data.size)
    return {entry.name: entry.view(path, data) for entry in entries}


def _parse_object(path: Path, text: bytes) -> dict[str, Any]:
    """The JSON object in `text`, of which no key may occur twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise SafetensorsError(f"{path}: {key!r} is there twice")
            result[key] = value
        return result

    try:
        result = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except SafetensorsError:
        raise
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(result, dict):
        raise SafetensorsError(f"{path}: holds a {type(result).__name__}, wanted an object")
    return result


def _check_places(path: Path, entries: list[_Entry], size: int) -> None:
    """The tensors, in the order of their offsets, have to fill the data area without gap, overlap or rest."""
    filled = 0
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != filled:
            kind = "overlaps the tensor before it" if entry.begin < filled else "leaves a gap before it"
            raise SafetensorsError(f"{path}: tensor {entry.name!r} {kind}: begins at {entry.begin}, not at {filled}")
        if entry.end > size:
            raise SafetensorsError(f"{path}: tensor {entry.name!r} is truncated: ends at {entry.end} of {size} bytes")
        filled = entry.end
    if filled != size:
        raise SafetensorsError(f"{path}: {size - filled} bytes are left over after the last tensor")


def load_model_weights(model_dir: str | Path) -> dict[str, np.ndarray]:
    """All weights of a model's folder: model.safetensors, or the shards that model.safetensors.index.json lists.

    `lm_head.weight` is always there: with a tied head it is the same array as `model.embed_tokens.weight`.
    Raises SafetensorsError for missing files or tensors, ConfigError for a config.json that cannot be used.
    """
    folder = Path(model_dir)
    config = LlamaConfig.from_folder(folder)
    index = folder / "model.safetensors.index.json"
    weights = _load_shards(index) if index.exists() else dict(_load_file(folder / "model.safetensors"))
    for name in (EMBEDDING,) if config.tie_word_embeddings else (EMBEDDING, HEAD):
        if name not in weights:
            raise SafetensorsError(f"{folder}: the tensor {name!r} is missing")
    if config.tie_word_embeddings:
        weights[HEAD] = weights[EMBEDDING]
    return weights


def _load_file(path: Path) -> Mapping[str, np.ndarray]:
    try:
        return load_safetensors(path)
    except OSError as error:
        raise SafetensorsError(f"{path}: cannot be read: {error.strerror}") from None


def _load_shards(index: Path) -> dict[str, np.ndarray]:
    """Exactly the tensors that the index names."""
    weight_map = _parse_object(index, index.read_bytes()).get("weight_map")
    if not isinstance(weight_map, dict):
        raise SafetensorsError(f"{index}: has no object weight_map")
    shards: dict[str, Mapping[str, np.ndarray]] = {}
    weights = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or file in ("", ".", "..") or "/" in file or "\0" in file:
            raise SafetensorsError(f"{index}: weight_map gives {file!r} for the tensor {name!r}, wanted a file's name")
        if file not in shards:
            shards[file] = _load_file(index.parent / file)
        if name not in shards[file]:
            raise SafetensorsError(f"{index.parent / file}: the tensor {name!r} is missing, though the index names it")
        weights[name] = shards[file][name]
    return weights
