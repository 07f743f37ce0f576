"""Reads model weights: the safetensors format, sharded models, and the bf16 number format.

Everything here runs on the host, and reads the files without the library of that name.
"""

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

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
    # TODO s01.1: a bf16 is the upper half of a float32
    raise NotImplementedError("s01.1")


def float32_to_bf16(values: np.ndarray) -> np.ndarray:
    """The uint16 bit patterns (same shape) of float32 values rounded to bf16, to the nearest, ties to even.

    Infinities and signed zeros stay, values that round past the largest bf16 become infinite, NaN stays NaN.
    """
    # TODO s01.1: add just under half a step, and 1 more when the kept part is odd; NaN apart
    raise NotImplementedError("s01.1")


def load_safetensors(path: str | Path) -> Mapping[str, np.ndarray]:
    """All tensors of one safetensors file by name, as read-only views of the mapped file: nothing is copied.

    DTYPES has the NumPy type for each name of a dtype.
    Raises SafetensorsError for a file that is not exactly a header and the bytes that it describes.
    """
    # TODO s01.2: map the file, check the header, make one view a tensor
    raise NotImplementedError("s01.2")


def load_model_weights(model_dir: str | Path) -> dict[str, np.ndarray]:
    """All weights of a model's folder: model.safetensors, or the shards that model.safetensors.index.json lists.

    `lm_head.weight` is always there: with a tied head it is the same array as `model.embed_tokens.weight`.
    Raises SafetensorsError for missing files or tensors, ConfigError for a config.json that cannot be used.
    """
    # TODO s01.3: one file or several, then the head
    raise NotImplementedError("s01.3")
