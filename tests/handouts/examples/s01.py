"""The numbers of 01-safetensors.md."""

import json
import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tests.handouts.formats import sized

LARGEST_FLOAT32 = np.finfo(np.float32).max
ROWS = (
    ("π", math.pi),
    ("0.1", 0.1),
    ("1.00390625", 1.00390625),
    ("1.01171875", 1.01171875),
    ("257", 257),
    ("3.4028235e38", float(LARGEST_FLOAT32)),
    ("1e-40", 1e-40),
)


def bits_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def rounded(value: float) -> tuple[int, float]:
    """The bits of the nearest bf16, and its value."""
    with np.errstate(over="ignore"):
        nearest = np.float32(value).astype(ml_dtypes.bfloat16)
    return int(nearest.view(np.uint16)), float(nearest)


def value_of(bits: int) -> float:
    return float(np.uint16(bits).view(ml_dtypes.bfloat16))


def range_and_digits() -> Iterator[str]:
    sign, exponent, fraction = 1, 8, 23
    kept = 16 - sign - exponent
    yield f"""
        A float32 has {sign + exponent + fraction} bits: {sign} for the sign, {exponent} for the exponent, {fraction}
        for the fraction. A bf16 is its upper half: sign, the same {exponent} exponent bits, and {kept} fraction bits.
        So it reaches as far as float32 (up to {float(ml_dtypes.finfo(ml_dtypes.bfloat16).max):.2e}) but keeps
        {kept + 1} significant bits (one of them is not stored), and that is {kept + 1} · log₁₀ 2 =
        {(kept + 1) * math.log10(2):.1f} decimal digits.
    """.replace("e+", "e")


def pi() -> Iterator[str]:
    bits = bits_of(math.pi)
    upper, lower = bits >> 16, bits & 0xFFFF
    nearest, _ = rounded(math.pi)
    yield f"""
        The figure in words: the float32 nearest to π is {sized(bits)}. Its upper half is {sized(upper)}, which is
        {value_of(upper)}; the next bf16, {sized(upper + 1)}, is {value_of(upper + 1)}. The lower half, {sized(lower)},
        is less than {sized(0x8000)}, which would be half-way, so π rounds down to {sized(nearest)}.
    """


def rounding_table() -> Iterator[str]:
    for name, value in ROWS:
        bits = bits_of(value)
        upper, lower = bits >> 16, bits & 0xFFFF
        nearest, stored = rounded(value)
        if lower == 0x8000:
            rule = f"tie, U {'odd' if upper & 1 else 'even'}"
        else:
            rule = f"{sized(lower)} {'<' if lower < 0x8000 else '>'} 0x8000"
        written = "∞" if math.isinf(stored) else f"{stored:.3g}" if stored < 1e-30 else str(stored)
        yield f"""| {name} | {sized(bits, 8)} | {sized(upper)} | {rule} | {"down" if nearest == upper else "up"} |
            {sized(nearest)} | {written} |"""
    largest = rounded(float(LARGEST_FLOAT32))[0]
    yield f"""
        "Up" is U + 1 as an integer. That works across borders too: after the largest fraction comes the next exponent,
        and after the largest finite number comes infinity, {sized(largest)}.
    """
    yield "So the whole rule can be one addition to the 32 bits before the lower half is cut off;"
    yield f"""so that L > {sized(0x8000)} carries, L < {sized(0x8000)} does not, and L = {sized(0x8000)} carries only"""


def nan() -> Iterator[str]:
    one, other = 0x7F800001, 0x7FFFFFFF
    assert np.isnan(np.asarray([one, other], np.uint32).view(np.float32)).all()
    assert math.isinf(value_of(one >> 16))
    assert value_of((other >> 16) + 1) == 0
    yield f"{sized(one)} is one; its upper half alone, {sized(one >> 16)}, is infinity."
    yield f"And rounding {sized(other)} up gives {sized((other >> 16) + 1)}, which is −0."
    yield f"{sized(one)} → {sized(one >> 16)}; {sized(other)} → {sized((other >> 16) + 1)}"


def file() -> Iterator[str]:
    a, b = np.zeros((2, 3), np.float32), np.asarray([1, -2, 0.5], ml_dtypes.bfloat16)
    ends = [a.nbytes, a.nbytes + b.nbytes]
    header = json.dumps(
        {
            "a": {"dtype": "F32", "shape": a.shape, "data_offsets": [0, ends[0]]},
            "b": {"dtype": "BF16", "shape": b.shape, "data_offsets": ends},
        },
        separators=(",", ":"),
    )
    n = -(-len(header) // 8) * 8
    data = 8 + n
    yield f"""
        The figure in words: a file of {data + ends[1]} bytes with the tensors `a`, float32 of shape {list(a.shape)},
        and `b`, bf16 of shape {list(b.shape)}. It starts with the bytes `{n.to_bytes(8, "little").hex(" ")}`, that is N
        = 0x{n:x} = {n}.
    """
    yield f"```json {header} ```"
    yield f"""
        of {len(header)} characters and {n - len(header)} spaces. The data area begins at byte 8 + {n} = {data}. Tensor
        a is 2·3·4 = {a.nbytes} bytes, file bytes {data} to {data + ends[0] - 1}; tensor b is 3·2 = {b.nbytes} bytes, at
        {data} + {ends[0]} = {data + ends[0]} to {data + ends[1] - 1}. If b holds 1, −2 and 0.5, its bytes are
        `{b.tobytes().hex(" ")}`: {", ".join(sized(int(bits)) for bits in b.view(np.uint16))}, low byte first.
    """
    yield f"b lies at 8 + {n} + {ends[0]} = {data + ends[0]}, not at {ends[0]}"
    yield f"`78 00 …` read as 0x{int.from_bytes(n.to_bytes(8, 'little'), 'big'):x}"


def mistakes() -> Iterator[str]:
    cut, nearest = bits_of(0.1) >> 16, rounded(0.1)[0]
    yield f"0.1: {sized(cut)} is {value_of(cut):.4f}, {sized(nearest)} is {value_of(nearest):.4f}"
    yield f"1.00390625 must give {rounded(1.00390625)[1]}, and 1.01171875 must give {rounded(1.01171875)[1]}"


def weights() -> Iterator[str]:
    yield f"2.5 GB for a Llama of 1.2 billion parameters, {2 * 70} GB for one of 70 billion."
    yield """You read a model's weights from disk: the safetensors file format, parsed by hand, and the 16-bit
        number format"""


EXAMPLES = (range_and_digits, pi, rounding_table, nan, file, mistakes, weights)
