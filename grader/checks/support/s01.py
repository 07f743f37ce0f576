"""Writes safetensors files byte by byte, well formed or not, and model folders of them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from grader.checking.api import BF16, Expected, Failure, expect, require
from grader.checking.draws import Array

DTYPES = {
    "BF16": BF16,
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U64": np.dtype("<u8"),
    "BOOL": np.dtype("?"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
CONFIG = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 12,
    "rms_norm_eps": 1e-5,
    "model_type": "llama",
}


def tensor(rng: Generator, dtype: str, *shape: int) -> Array:
    """Random numbers of a safetensors dtype, over all of its range but NaN."""
    kind = DTYPES[dtype]
    if kind == np.bool_:
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        return rng.integers(bounds.min, bounds.max, shape, kind, endpoint=True)
    return np.asarray(rng.standard_normal(shape) * 100).astype(kind)


def entries(tensors: Mapping[str, Array]) -> dict[str, Any]:
    """The header's entries of tensors that lie one after the other."""
    result, end = {}, 0
    for name, array in tensors.items():
        begin, end = end, end + array.nbytes
        result[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
    return result


def file_bytes(header: Any, data: bytes, padding: int = 0) -> bytes:
    """A file of this header (JSON text, or what becomes it), padded with spaces, and these bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * padding
    return len(text).to_bytes(8, "little") + text + data


def write_tensors(
    path: Path,
    tensors: Mapping[str, Array],
    listed: Iterable[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    padding: int = 0,
) -> Path:
    """Write tensors in their order; `listed` is the order of their names in the header."""
    described = entries(tensors)
    header = {"__metadata__": dict(metadata)} if metadata is not None else {}
    header |= {name: described[name] for name in listed or tensors}
    path.write_bytes(file_bytes(header, b"".join(array.tobytes() for array in tensors.values()), padding))
    return path


def malformed_headers(rng: Generator) -> dict[str, bytes]:
    """Files, by what is wrong in words, whose length or header cannot be read."""
    tensors = {"weight": tensor(rng, "F32", 3, 4)}
    text, data = json.dumps(entries(tensors)).encode(), tensors["weight"].tobytes()
    whole = file_bytes(text, data)
    return {
        "it has no bytes": b"",
        "it ends within the 8 bytes of the header's length": whole[:5],
        "it ends within the header": whole[:40],
        "the header's length goes past the end of the file": (len(whole) + 1).to_bytes(8, "little") + whole[8:],
        "the header's length is above 2^63": (2**63 + 5).to_bytes(8, "little") + whole[8:],
        "the header is not JSON": file_bytes(text[:-1], data),
        "the header is not UTF-8": file_bytes(text + b"\xff", data),
        "the header is a JSON list": file_bytes(b"[]", b""),
        "the header is a JSON number": file_bytes(b"7", b""),
        "2 bytes follow the last tensor": whole + b"\0\0",
    }


def doubled_name(name: str) -> bytes:
    """A file whose header has two entries of one name."""
    entry = json.dumps(entries({name: np.zeros(12, np.float32)}))
    return file_bytes(f"{entry[:-1]}, {entry[1:]}".encode(), bytes(48))


def malformed_tensors(first: str, second: str) -> dict[str, bytes]:
    """Files, by what is wrong in words, in which the entry of `second`, after `first`, does not fit the bytes."""
    described = entries({"head": np.zeros(2, np.float32), first: np.zeros(4, np.float32), second: np.zeros(6, BF16)})
    gap = f"a gap of 1 byte between {first!r} and {second!r}"
    overflow = f"the shape of {second!r} needs 2^65 + 16 bytes, which in 64 bits become the 16 that its offsets span"
    faults: dict[str, dict[str, Any]] = {
        f"the dtype of {second!r} is F33": {"dtype": "F33"},
        f"the shape of {second!r} needs more bytes than its offsets span": {"shape": [7]},
        f"the shape of {second!r} needs fewer bytes than its offsets span": {"shape": [5]},
        f"the shape of {second!r} has negative sizes": {"shape": [-2, -3]},
        f"the shape of {second!r} has true as a size": {"shape": [True, 6]},
        f"the shape of {second!r} has the size 6.0, which is not an integer": {"shape": [6.0]},
        overflow: {"shape": [4, 2**62 + 2], "data_offsets": [24, 40]},
        f"the dtype of {second!r} needs more bytes than its offsets span": {"dtype": "F32"},
        f"{second!r} overlaps {first!r}": {"data_offsets": [22, 34]},
        gap: {"data_offsets": [25, 37]},
        f"{second!r} ends before it begins": {"data_offsets": [36, 24]},
        f"{second!r} has data_offsets of three numbers": {"data_offsets": [24, 36, 36]},
        f"the data_offsets of {second!r} are not integers": {"data_offsets": [24.0, 36.0]},
        f"{second!r} ends past the end of the file": {"data_offsets": [24, 48], "shape": [12]},
    }
    files = {}
    for name, fault in faults.items():
        header = {**described, second: {**described[second], **fault}}
        files[name] = file_bytes(header, bytes({gap: 37, overflow: 40}.get(name, 36)))
    for key in ("dtype", "shape", "data_offsets"):
        incomplete = {k: value for k, value in described[second].items() if k != key}
        files[f"{second!r} has no {key}"] = file_bytes({**described, second: incomplete}, bytes(36))
    return {**files, f"{second!r} is cut off by the end of the file": file_bytes(described, bytes(35))}


def model_folder(folder: Path, *, tied: bool) -> Path:
    """Make a folder with the config.json of a small model."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "tie_word_embeddings": tied}))
    return folder


def expect_tensors(
    got: Any, tensors: Mapping[str, Array], *paths: Path, missing: str = "", unknown: str = "it is in no file"
) -> None:
    """Raise Failure unless exactly these tensors came back, equal to the last bit.

    `paths`: the files that hold them. `missing` and `unknown` say of a tensor too few or too many where it is.
    """
    require(isinstance(got, dict), "The call must return a mapping from names to arrays.", "INCORRECT_DTYPE")
    absent, others = sorted(tensors.keys() - got.keys()), sorted(got.keys() - tensors.keys())
    for name in absent[:1]:
        require(False, f"The tensor {name!r} is missing from what was returned{missing and f': {missing}'}.")
    for name in others[:1]:
        require(False, f"A tensor {name!r} was returned: {unknown}.")
    for name, array in tensors.items():
        try:
            expect(got[name], Expected(array, 0, array.dtype), name)
        except Failure as failure:
            failure.message += "".join(_place(path, name) for path in paths)
            raise


def _place(path: Path, name: str) -> str:
    """Where a tensor lies in a file, as a sentence after a space; "" when that file has none of this name."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:start]).get(name)
    if entry is None:
        return ""
    begin, end = entry["data_offsets"]
    told = f"{name!r} has the bytes {start + begin} to {start + end} of {path.name}: its data_offsets {[begin, end]}"
    return f" {told} count from the end of the header, which is byte {start}."


def expect_bits(function: str, inputs: Array, got: Any, want: Array) -> None:
    """Raise Failure unless a conversion returned these bits; both are unsigned integers."""
    kind = np.dtype(np.float32) if want.dtype == np.uint32 else want.dtype
    if not isinstance(got, np.ndarray) or (got.shape, got.dtype) != (want.shape, kind):
        expect(got, Expected(want.view(kind), 0, kind), function)
    bits = got.view(want.dtype)
    is_nan = np.isnan(got) & np.isnan(want.view(kind)) if kind.kind == "f" else np.zeros(len(want), bool)
    for i in np.flatnonzero((bits != want) & ~is_nan)[:1]:
        told = f"{function} of 0x{inputs[i]:0{2 * inputs.itemsize}X} returned 0x{bits[i]:0{2 * bits.itemsize}X}"
        told += f"; it must return 0x{want[i]:0{2 * want.itemsize}X}."
        require(False, told, hint=_rounding(inputs, bits) if want.dtype == np.uint16 else None)


def _rounding(inputs: Array, bits: Array) -> str | None:
    """What was done instead of rounding to the nearest, where all results say the same."""
    if (bits == inputs >> 16).all():
        return "Every result is the upper half of its input: the lower half is cut off, where it must be rounded."
    finite = inputs & 0x7FFFFFFF < 0x7F7F0000
    if (bits == (inputs + 0x8000) >> 16)[finite].all():
        return "Ties are rounded away from 0: halfway between two bf16, the one whose last bit is 0 is right."
    return None
