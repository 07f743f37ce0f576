"""The numbers of 12-static-batching.md."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from tests.handouts.formats import many, num

HIDDEN, LAYERS, QUERY_DIM, KV_DIM, INNER, VOCABULARY = 2048, 16, 2048, 512, 8192, 128_256
"""Llama 3.2 1B."""
ATTENTION = HIDDEN * (QUERY_DIM + 2 * KV_DIM) + QUERY_DIM * HIDDEN
WEIGHTS = VOCABULARY * HIDDEN + LAYERS * (ATTENTION + 3 * HIDDEN * INNER + 2 * HIDDEN) + HIDDEN
BANDWIDTH = 1_000e9


def weights() -> Iterator[str]:
    gigabytes = 2 * WEIGHTS / 1e9
    yield f"""
        For Llama 3.2 1B that is {num(WEIGHTS)} weights of 2 bytes, {gigabytes:.2f} GB, that have to be read from memory
        to produce one token. At {num(BANDWIDTH / 1e9)} GB a second this takes {2e3 * WEIGHTS / BANDWIDTH:.1f} ms
    """
    yield f"With eight sequences in the batch the same {gigabytes:.2f} GB give eight tokens."
    yield f"tokens per second at {num(BANDWIDTH / 1e9)} GB/s |"
    for batch in (1, 8, 64):
        rate = BANDWIDTH / (2 * WEIGHTS) * batch
        yield f"| {batch} | {gigabytes:.2f} GB | {gigabytes / batch:.2f} GB | {num(rate)} |"


def static_batch() -> Iterator[str]:
    answers = [3, 8, 5, 2]
    passes, places = max(answers), max(answers) * len(answers)
    yield f"""
        The figure in words: four requests, whose answers have {many(answers[:3])} and {answers[3]} tokens. One at a
        time they need {sum(answers)} passes. As a batch they need {passes}, as many as the longest answer. Of {places}
        places {sum(answers)} give a token;
    """
    yield f"""![Four requests of {many(answers[:3])} and {answers[3]} tokens as a batch: {passes} passes instead of
        {sum(answers)}]"""


def packed_attention() -> Iterator[str]:
    keys, values, starts = np.asarray([0.0, 1, 5]), np.asarray([10.0, 20, 70]), [0, 2, 3]

    def seen(first: int, row: int) -> tuple[np.ndarray, float]:
        p = np.exp(keys[first : row + 1])
        p /= p.sum()
        return p, float(p @ values[first : row + 1])

    yield f"""
        By hand, with one head, D = 1, scale 1, two sequences of 2 and 1 tokens. q = 1, 1, 1; k = {many(keys)}; v =
        {many(values)}; cu_seqlens = {many(starts)} for both:
    """
    (_, alone), (p, both), (_, other) = seen(0, 0), seen(0, 1), seen(2, 2)
    yield "| row | sequence | keys seen | p | out |"
    yield f"| 0 | 0 | row 0 | 1 | {alone:g} |"
    yield f"| 1 | 0 | rows 0, 1 | {many(p, 4)} | {p[0]:.4f}·10 + {p[1]:.4f}·20 = {both:.4f} |"
    yield f"| 2 | 1 | row 2 | 1 | {other:g} |"
    p, wrong = seen(0, 2)
    yield f"""
        Without the border row 2 would see rows 0, 1 and 2, and give {p[0]:.4f}·10 + {p[1]:.4f}·20 + {p[2]:.4f}·70 =
        {wrong:.4f}: off by little here, because key 5 is large
    """
    yield f"the example: row 2 gives {wrong:.4f} or {alone:g}"
    yield "s[j] = scale · (q[i, h] · k[j, g]) for the keys j = 0 … S_b − L_b + i of sequence b"
    yield """`cu_seqlens` has B + 1 numbers, begins with 0, and sequence b owns the rows cu_seqlens[b] …
        cu_seqlens[b + 1] − 1."""


def packing() -> Iterator[str]:
    prompts = [7, 2, 4, 1]
    padded = len(prompts) * max(prompts)
    assert sum(prompts) * 2 == padded
    yield f"""
        The figure in words: prompts of {many(prompts[:3])} and {prompts[3]} tokens. Padded, they are {len(prompts)} ·
        {max(prompts)} = {padded} rows, half of them padding. Packed, they are {sum(prompts)} rows.
    """
    yield f"""![Four prompts of {many(prompts[:3])} and {prompts[3]} tokens: {padded} rows padded,
        {sum(prompts)} packed]"""


def integers() -> Iterator[str]:
    lengths, max_length = [3, 1, 4], 6
    starts = [0, *accumulate(lengths)]
    positions = [[*range(length)] for length in lengths]
    mapping = [[slot * max_length + p for p in own] for slot, own in enumerate(positions)]
    joined = [many(own, between=" ") for own in positions]
    last = [end - 1 for end in starts[1:]]
    yield f"""
        The figure in words: prompts A, B, C of {lengths[0]}, {lengths[1]} and {lengths[2]} tokens, cu_seqlens =
        {many(starts)}, positions {", ".join(joined)}. In the mask each prompt has a triangle of its own along the
        diagonal: C0, in row {starts[2]}, sees only itself, although four rows lie before it. The rows whose logits are
        wanted are the last of each prompt: {many(last)}.
    """
    assert starts[2] == 4
    yield f"""![Prompts of {lengths[0]}, {lengths[1]} and {lengths[2]} tokens: cu_seqlens
        {many(starts, between=" ")},"""
    names = [f"{name}{i}" for name, length in zip("ABC", lengths, strict=True) for i in range(length)]
    yield f"| ids | T | {' '.join(names)} |"
    yield f"| positions | T | {' '.join(joined)} |"
    rows = ", ".join(many(own, between=" ") for own in mapping)
    yield f"| slot mapping | T | from the cache, for slots 0, 1, 2 with max_length = {max_length}: {rows} |"
    yield f"| cu_seqlens | B + 1 | {many(starts, between=' ')}; the same for queries and keys |"
    yield f"| last rows | B | {many(last, between=' ')} |"
    yield f"lengths 3, 1: rows {many([end - 1 for end in accumulate([3, 1])], between=' and ')}"
    yield "0 1 2 3 4 instead of 0 1 2 0 1"


def first_blocks(lengths: list[int], tile: int) -> list[int]:
    starts = [0, *accumulate(lengths)][:-1]
    return [start // tile + b for b, start in enumerate(starts)]


def blocks() -> Iterator[str]:
    lengths, tile = [5, 1, 6], 4
    starts = [0, *accumulate(lengths)]
    tiles = [-(-length // tile) for length in lengths]
    grid = -(-sum(lengths) // tile) + len(lengths)
    first = first_blocks(lengths, tile)
    work = [(bisect_right(first, block) - 1, block - first[bisect_right(first, block) - 1]) for block in range(grid)]
    assert [t < tiles[sequence] for sequence, t in work] == [True] * sum(tiles) + [False]
    words = {5: "five", 6: "sixth"}
    yield f"""
        The figure in words: sequences of {many(lengths[:2])} and {lengths[2]} queries, tiles of {tile}. They have
        {many(tiles[:2])} and {tiles[2]} tiles, {words[sum(tiles)]} together. The grid has cdiv(T, {tile}) + B = {grid}
        blocks for each head. The first {words[sum(tiles)]} take one tile each, in order;
    """
    yield f"""![Sequences of {many(lengths[:2])} and {lengths[2]} queries in tiles of {tile}: {words[sum(tiles)]} blocks
        have a tile, the {words[grid]} finds nothing]"""
    yield f"""
        Let sequence b begin at block cu_seqlens_q[b] / tile + b, in whole numbers. That leaves each sequence at least
        as many blocks as it has tiles, and the last one ends within the grid. In the example, with cu_seqlens_q =
        {many(starts)}, the first blocks are {many(first[:2])} and {first[2]};
    """
    yield f"""block 1 has one query, row {tile}. If it stored its whole tile, rows {tile} to {2 * tile - 1}, its threads
        would write `out` of row {starts[1]} as those of block {first[1]} do"""
    yield f"{many(lengths)} in tiles of {tile}: {-(-sum(lengths) // tile)} blocks for {sum(tiles)} tiles"
    yield f"""with 256 short prompts that is more than the attention itself. Let it be cheap: a search by halving
        needs {(256).bit_length() - 1} steps."""


def every_sequence_has_its_blocks() -> Iterator[str]:
    """The rule of the page, for any lengths: enough blocks for each sequence, and none beyond the grid."""
    rng = np.random.default_rng(12)
    for _ in range(200):
        tile = int(rng.integers(1, 9))
        lengths = [int(length) for length in rng.integers(0, 20, rng.integers(1, 9))]
        grid = -(-sum(lengths) // tile) + len(lengths)
        first = [*first_blocks(lengths, tile), grid]
        assert all(b + -(-length // tile) <= after for b, length, after in zip(first, lengths, first[1:], strict=False))
    yield "a block belongs to the last sequence whose first block is not behind it."


def mistakes() -> Iterator[str]:
    yield "L_b = 1, S_b = 9"
    starts = [0, 3, 3, 5]
    yield f"{many(starts)}: row 3 belongs to sequence {bisect_right(starts, 3) - 1}"
    yield "slots = [2, 0]"


EXAMPLES = (
    weights, static_batch, packed_attention, packing, integers, blocks, every_sequence_has_its_blocks, mistakes,
)  # fmt: skip
