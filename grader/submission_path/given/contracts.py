"""What every kernel takes: array shapes in dimension names, dtypes, sizes and scalars. The one table of it.

T tokens, H hidden size, V vocabulary, D head size, Hq and Hkv query and key/value heads, I intermediate size, L
queries, S keys; R rows and N columns; M, N and K of a matrix product; B sequences, M blocks of a block table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from ml_dtypes import bfloat16

if TYPE_CHECKING:
    from pycuda.gpuarray import GPUArray

BF16 = np.dtype(bfloat16)
DTYPES = {"bf16": BF16, "f32": np.dtype(np.float32), "i32": np.dtype(np.int32)}


CUDA_TYPES = {BF16: "__nv_bfloat16", DTYPES["f32"]: "float", DTYPES["i32"]: "int"}


class ShapeError(ValueError):
    """An array's shape does not fit the kernel's contract or the other arrays."""


class Array(NamedTuple):
    """One array argument of a kernel: its shape in dimension names (or "D/2", "B+1")."""

    name: str
    shape: tuple[str, ...]
    dtype: np.dtype


Rule = tuple[str, Callable[[Mapping[str, int]], bool]]
"""What the dimensions must fulfil besides, as a sentence and as a test."""


class Contract(NamedTuple):
    """The arguments of one kernel: pointers to `arrays`, then `ints` as int, then `floats` as float."""

    name: str
    file: str
    outputs: tuple[Array, ...]
    inputs: tuple[Array, ...]
    ints: tuple[str, ...]
    floats: tuple[str, ...]
    rules: tuple[Rule, ...]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.outputs + self.inputs

    @property
    def argument_format(self) -> str:
        """The arguments' types as PyCUDA's `prepare` takes them."""
        return "P" * len(self.arrays) + "i" * len(self.ints) + "f" * len(self.floats)

    def misfit(self, text: str) -> str:
        """What the kernel must declare instead, when `text` is the emulator's reason why its parameters do not fit."""
        arrays = {array.name: f"{CUDA_TYPES[array.dtype]} *" for array in self.arrays}
        types = arrays | dict.fromkeys(self.ints, "int") | dict.fromkeys(self.floats, "float")
        wrong = re.match(rf"parameter #(\d+)|{self.name} takes \d+ arguments", text)
        if not wrong:
            return text
        if not wrong[1]:
            return f"{self.name} must have the {len(types)} parameters of the contract: {', '.join(types)}"
        name, kind = list(types.items())[int(wrong[1])]
        return f"the contract passes {kind} for parameter #{wrong[1]} ({name}) of {self.name}: declare it as {kind}"


def _contract(name: str, file: str, arrays: str, ints: str, floats: str = "", rules: tuple[Rule, ...] = ()) -> Contract:
    """`arrays` reads "out[T,H] <- x[T,H] f32, …": left of the arrow what the kernel writes (also in place)."""

    def parse(text: str) -> tuple[Array, ...]:
        found = re.findall(r"(\w+)\[([^]]*)](?: (\w+))?", text)
        return tuple(Array(array, tuple(shape.split(",")), DTYPES[dtype or "bf16"]) for array, shape, dtype in found)

    outputs, inputs = arrays.split("<-")
    return Contract(name, file, parse(outputs), parse(inputs), tuple(ints.split()), tuple(floats.split()), rules)


_GROUPED_HEADS: tuple[Rule, ...] = (
    ("Hq must be a multiple of Hkv", lambda dims: dims["Hkv"] > 0 and dims["Hq"] % dims["Hkv"] == 0),
    ("D must be a multiple of 8, at most 128", lambda dims: dims["D"] % 8 == 0 and dims["D"] <= 128),
)

_PAGED_CACHE = "key_cache[num_blocks,block_size,Hkv,D], value_cache[num_blocks,block_size,Hkv,D]"
_CONTIGUOUS_CACHE = "key_cache[num_slots,length,Hkv,D], value_cache[num_slots,length,Hkv,D]"

CONTRACTS: Mapping[str, Contract] = {
    contract.name: contract
    for contract in (
        _contract("vector_add", "vector_add.cu", "out[n] f32 <- x[n] f32, y[n] f32", "n"),
        _contract("embedding", "embedding.cu", "out[T,H] <- table[V,H], ids[T] i32", "T H"),
        _contract("residual_add", "residual_add.cu", "x[T,H] <- y[T,H]", "T H"),
        _contract("silu_mul", "silu_mul.cu", "out[T,I] <- gate[T,I], up[T,I]", "T I"),
        _contract("rmsnorm_tree", "rmsnorm.cu", "out[T,H] <- x[T,H], weight[H]", "T H", "eps"),
        _contract("rmsnorm", "rmsnorm.cu", "out[T,H] <- x[T,H], weight[H]", "T H", "eps"),
        _contract(
            "rope",
            "rope.cu",
            "q[T,Hq,D], k[T,Hkv,D] <- cos[length,D/2] f32, sin[length,D/2] f32, positions[T] i32",
            "T Hq Hkv D",
        ),
        _contract("softmax", "softmax.cu", "out[R,N] f32 <- x[R,N] f32", "R N"),
        _contract("matmul_naive", "matmul.cu", "out[M,N] <- x[M,K], w[N,K]", "M N K"),
        _contract("matmul_tiled", "matmul.cu", "out[M,N] <- x[M,K], w[N,K]", "M N K"),
        _contract(
            "attention",
            "attention.cu",
            "out[L,Hq,D] <- q[L,Hq,D], k[S,Hkv,D], v[S,Hkv,D]",
            "L S Hq Hkv D",
            "scale",
            _GROUPED_HEADS,
        ),
        _contract("argmax", "argmax.cu", "out[R] i32 <- x[R,N] f32", "R N"),
        _contract(
            "write_kv",
            "write_kv.cu",
            f"{_PAGED_CACHE} <- k[T,Hkv,D], v[T,Hkv,D], slot_mapping[T] i32",
            "T Hkv D",
        ),
        _contract(
            "decode_attention",
            "decode_attention.cu",
            f"out[B,Hq,D] <- q[B,Hq,D], {_CONTIGUOUS_CACHE}, slots[B] i32, context_lens[B] i32",
            "B length Hq Hkv D",
            "scale",
            _GROUPED_HEADS,
        ),
        _contract(
            "flash_attention",
            "flash_attention.cu",
            "out[L,Hq,D] <- q[L,Hq,D], k[S,Hkv,D], v[S,Hkv,D]",
            "L S Hq Hkv D",
            "scale",
            _GROUPED_HEADS,
        ),
        _contract(
            "flash_decode_attention",
            "flash_decode_attention.cu",
            f"out[B,Hq,D] <- q[B,Hq,D], {_CONTIGUOUS_CACHE}, slots[B] i32, context_lens[B] i32",
            "B length Hq Hkv D",
            "scale",
            _GROUPED_HEADS,
        ),
        _contract(
            "attention_varlen",
            "attention_varlen.cu",
            "out[T,Hq,D] <- q[T,Hq,D], k[S,Hkv,D], v[S,Hkv,D], cu_seqlens_q[B+1] i32, cu_seqlens_k[B+1] i32",
            "B T Hq Hkv D",
            "scale",
            _GROUPED_HEADS,
        ),
        _contract(
            "paged_attention",
            "paged_attention.cu",
            f"out[B,Hq,D] <- q[B,Hq,D], {_PAGED_CACHE}, block_tables[B,M] i32, context_lens[B] i32",
            "B M block_size Hq Hkv D",
            "scale",
            _GROUPED_HEADS,
        ),
    )
}


def check_arrays(contract: Contract, arrays: tuple[GPUArray, ...]) -> dict[str, int]:
    """The dimensions that the arrays agree on; raises ShapeError or TypeError, naming the array."""
    dims: dict[str, int] = {}
    for spec, array in zip(contract.arrays, arrays, strict=True):
        label = f"{contract.name}: {spec.name}"
        if not hasattr(array, "gpudata"):
            raise TypeError(f"{label} is a {type(array).__name__}, wanted a pycuda.gpuarray.GPUArray")
        if array.dtype != spec.dtype:
            raise TypeError(f"{label} has dtype {array.dtype}, wanted {spec.dtype}")
        shape = tuple(int(size) for size in array.shape)
        wanted = f"[{', '.join(spec.shape)}]"
        if len(shape) != len(spec.shape):
            raise ShapeError(f"{label} has shape {list(shape)}, wanted {wanted}")
        for symbol, size in zip(spec.shape, shape, strict=True):
            name, value = _dimension(symbol, size)
            if dims.setdefault(name, value) != value:
                used = {_dimension(other, 0)[0] for other in spec.shape}
                known = ", ".join(f"{name} = {size}" for name, size in dims.items() if name in used)
                raise ShapeError(f"{label} has shape {list(shape)}, wanted {wanted} with {known}")
        if array.size and not array.flags.c_contiguous:
            raise ShapeError(f"{label} with shape {list(shape)} is not contiguous: copy it first")
    for rule, holds in contract.rules:
        if not holds(dims):
            raise ShapeError(f"{contract.name}: {rule}, got {', '.join(f'{n} = {size}' for n, size in dims.items())}")
    return dims


def _dimension(symbol: str, size: int) -> tuple[str, int]:
    """The dimension that a size stands for: "D/2" of size 12 is (D, 24), "B+1" of size 4 is (B, 3)."""
    halved, _, divisor = symbol.partition("/")
    name, _, extra = halved.partition("+")
    return name, size * int(divisor or 1) - int(extra or 0)
