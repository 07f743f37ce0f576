"""The numbers of 02-elementwise.md."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tests.handouts.formats import many, num

SECTOR, WARP, BF16_BYTES = 32, 32, 2
GATES = np.asarray([-20, -1, 0, 1, 2, 20], np.float64)


def silu(gate: np.ndarray) -> np.ndarray:
    return np.asarray(gate / (1 + np.exp(-gate)))


def sectors(elements: np.ndarray) -> int:
    """How many sectors a request for bf16 elements of these numbers touches."""
    return len(set(elements * BF16_BYTES // SECTOR))


def launches() -> Iterator[str]:
    layers = 16
    yield f"A model with {layers} layers runs `residual_add` {2 * layers} times and `silu_mul` {layers} times"
    far = sectors(np.arange(WARP) * 16) / sectors(np.arange(WARP))
    yield f"such a kernel can move up to {far:g} times as many bytes, with the same instructions."
    yield f"""`TOO_SLOW`, "{far:g} times the fewest possible\""""


def gates() -> Iterator[str]:
    yield "By hand, for six gates and up = 2 everywhere:"
    yield f"| gate | {many(GATES, between=' | ')} |"
    for name, values in (("silu(gate)", silu(GATES)), ("out", 2 * silu(GATES))):
        tiny, *others = values
        digits = (5, 0, 5, 5, 4)
        cells = (num(value, places) for value, places in zip(others, digits, strict=True))
        yield f"| {name} | {num(tiny, 10)} | {' | '.join(cells)} |"


def overflow() -> Iterator[str]:
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isinf(np.exp(np.float32(88.73)))
        assert not np.isinf(np.exp(np.float32(88.72)))
        assert np.isnan(np.exp(np.float32(89)) / (1 + np.exp(np.float32(89))) * np.float32(89))
        low = np.float32(-89) / (1 + np.exp(np.float32(89)))
        sigmoid = np.exp(np.float32(89)) / (1 + np.exp(np.float32(89)))
    assert low == 0
    assert np.signbit(low)
    assert np.isnan(1 - sigmoid)
    written = f"{-silu(np.asarray(-89.0)):.45f}".partition(".")[2]
    zeros = len(written) - len(written.lstrip("0"))
    yield f"""
        float32 ends at {float(np.finfo(np.float32).max):.1e}, so `expf(88.73)` is infinite already. Written as above, g
        = −89 gives −89 / (1 + ∞) = −0, which is right as far as anyone can tell (the true value is −0.0000…, {zeros}
        zeros, {written[zeros : zeros + 3]}). The form exp(g) / (1 + exp(g)) · g, equal on paper, gives ∞ / ∞ = NaN at g
        = 89.
    """.replace("e+", "e")
    yield "silu is 0 far to the left"
    yield "| g = 89: ∞ / ∞ |"
    yield "| g = −89: e = ∞, ∞ / ∞ |"


def gather() -> Iterator[str]:
    ids = np.asarray([2, 0, 2])
    table = np.arange(12).reshape(4, 3)
    assert (table[ids][2] == table[2]).all()
    yield f"""
        The figure in words: with ids {many(ids)} and a table of {len(table)} rows of {table.shape[1]} elements, block 0
        copies table row {ids[0]} to row 0 of out, block 1 copies row {ids[1]} to row 1, block 2 copies row {ids[2]} to
        row 2. Within a block, thread i copies column i. If H is larger than the block (rows of 2,880 are common, a
        block has at most {num(1 << 10)} threads), thread i also takes column i + block, i + 2·block, …, in a loop.
    """
    yield f"ids {many(ids)} must give rows {many(ids)}"


def race() -> Iterator[str]:
    step = 128
    block, thread = divmod(step, 256)
    assert block * step + thread == 1 * step + 0
    yield f"""
        If blocks of 256 computed i = blockIdx.x · {step} + threadIdx.x, thread {thread} of block {block} and thread 0
        of block 1 would both execute `x[i] = x[i] + y[i]` for i = {step}. They may read x[{step}] one after the other
    """


def large_offsets() -> Iterator[str]:
    yield f"""
        overflows past 2³¹ − 1 = {num(2**31 - 1)}. {num(200_000)} tokens of {num(14_336)} elements are
        {num(200_000 * 14_336)}.
    """


def coalescing() -> Iterator[str]:
    lanes, piece = np.arange(WARP), 16
    near, far = sectors(lanes), sectors(lanes * piece)
    yield f"pieces of {SECTOR} bytes, aligned to multiples of {SECTOR}."
    yield f"The memory **moves** bytes: {SECTOR} for each sector of each request."
    yield f"""
        Top: lane i (the thread's place in its warp) reads element i; {WARP} elements of {BF16_BYTES} bytes are
        {WARP * BF16_BYTES} bytes, {near} sectors. Bottom: the row was cut into pieces of {piece} elements, a piece per
        thread, so in each step lane i reads element {piece}·i + step; the {WARP} addresses are {piece * BF16_BYTES}
        bytes apart and fall into {far} different sectors: {num(far * SECTOR)} bytes moved for {WARP * BF16_BYTES} bytes
        requested. The loop that does it right is, in every kernel of this course, the one in which thread i takes i, i
        + block, i + 2·block, …
    """
    yield f"""![A warp that reads {WARP} neighbouring bf16 elements moves {near} sectors; one that reads every {piece}th
        element moves {far}]"""


def mistakes() -> Iterator[str]:
    block, width = 1024, 2048
    assert width > block
    yield f"H = {num(width)} and {num(block)} threads: columns {num(block)} and up have no thread"
    yield f"T·H = 257 elements, block 256: {-(-257 // 256)} blocks"
    yield f"3 rows of 85: elements {85} to {3 * 85 - 1} have no thread"
    threads = -(-2 * 300 // 256) * 256
    yield f"""the last block of 2 × 300 elements at block 256 has {threads} − {2 * 300} = {threads - 2 * 300}
        threads too many"""
    total = 256 + 3
    nearest = float(ml_dtypes.bfloat16(total))
    cut = float((np.float32(total).view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16))
    assert total - cut == nearest - total
    yield f"""256 + 3 = {total} lies half-way between {cut:g} and {nearest:g}: to even gives {nearest:g}, cutting
        off {cut:g}"""


EXAMPLES = (launches, gates, overflow, gather, race, large_offsets, coalescing, mistakes)
