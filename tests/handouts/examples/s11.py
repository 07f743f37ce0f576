"""The numbers of 11-online-softmax.md."""

import math
from collections.abc import Iterator

import numpy as np

from tests.handouts.formats import many, num

SCORES = np.asarray([1.0, 3, 2, 0, 5, 4])
VALUES = np.asarray([10.0, 20, 30, 40, 50, 60])
TILE = 2
KB48 = 48 * 1024
HEADS, KV_HEADS, HEAD_DIM, KEYS = 32, 8, 64, 1000


class Step:
    """One tile: what it brings, and the state (maximum, sum of exponentials, weighted sum) after it."""

    def __init__(self, tile: int, m: float, total: float, o: float) -> None:
        self.scores, self.values = (array[tile * TILE :][:TILE] for array in (SCORES, VALUES))
        self.m = max(m, self.scores.max())
        self.factor = math.exp(m - self.m)
        self.p = np.exp(self.scores - self.m)
        self.l_added, self.o_added = float(self.p.sum()), float(self.p @ self.values)
        self.l, self.o = total * self.factor + self.l_added, o * self.factor + self.o_added


def steps() -> list[Step]:
    found = [Step(0, -math.inf, 0.0, 0.0)]
    for tile in range(1, len(SCORES) // TILE):
        found.append(Step(tile, found[-1].m, found[-1].l, found[-1].o))
    return found


def short(values: np.ndarray) -> str:
    return ", ".join("1" if value == 1 else f"{value:.4f}" for value in values)


def three_tiles() -> Iterator[str]:
    a, b, c = steps()
    yield f"""The figure in words, one query, D = 1, scores {many(SCORES)}, values {many(VALUES)}, tiles of two keys:"""
    yield "| tile | scores | m new | factor | p | l | o |"
    yield f"""| 0 | {many(a.scores)} | {a.m:g} | {a.factor:g} | {short(a.p)} | {a.l:.4f} |
        {a.p[0]:.4f}·{a.values[0]:g} + {a.p[1]:g}·{a.values[1]:g} = {a.o:.4f} |"""
    yield f"""| 1 | {many(b.scores)} | {b.m:g} | {b.factor:g} | {short(b.p)} | {a.l:.4f} + {b.l_added:.4f} = {b.l:.4f} |
        {a.o:.4f} + {b.o_added:.4f} = {b.o:.4f} |"""
    yield f"""| 2 | {many(c.scores)} | {c.m:g} | exp({num(b.m - c.m)}) = {c.factor:.4f} | {short(c.p)} |
        {b.l:.4f}·{c.factor:.4f} + {c.l_added:.4f} = {c.l:.4f} | {b.o:.4f}·{c.factor:.4f} + {c.o_added:.4f} =
        {c.o:.4f} |"""
    yield f"""![Three tiles: l and o after each, and the rescaling by exp({b.m:g} − {c.m:g}) when tile 2 has a
        larger maximum]"""


def wrong_programs() -> Iterator[str]:
    last = steps()[-1]
    weights = np.exp(SCORES - SCORES.max())
    assert math.isclose(last.o / last.l, float(weights @ VALUES / weights.sum()))
    plain_l, plain_o = (sum(getattr(step, name) for step in steps()) for name in ("l_added", "o_added"))
    assert plain_o / last.l > VALUES.max()
    yield f"""
        out = {last.o:.4f} / {last.l:.4f} = {last.o / last.l:.4f}, the same as softmax over all six at once. Two wrong
        programs, for comparison: without any factor the result is {plain_o:.4f} / {plain_l:.4f} =
        {plain_o / plain_l:.4f}; with the factor on l alone {plain_o / last.l:.4f}, more than the largest value there
        is.
    """
    yield f"the example: {plain_o / plain_l:.4f} in place of {last.o / last.l:.4f}"
    yield f"the example: {plain_o / last.l:.4f}"


def merging() -> Iterator[str]:
    _, before, last = steps()
    yield f"""
        Tile 2 alone is ({last.m:g}, {last.l_added:.4f}, {last.o_added:.4f}); merged with the state after tile 1,
        ({before.m:g}, {before.l:.4f}, {before.o:.4f}), it gives ({last.m:g}, {last.l:.4f}, {last.o:.4f}) again. A
        single tile is nothing but such a state, and a score is one with l = 1 and o = v.
    """
    yield "As long as no tile brings a larger maximum the factor is exp(0) = 1 and nothing changes. The first tile has"
    yield "factor exp(−∞ − m_new) = 0, which is what one wants"
    yield """m = −∞ the largest score so far l = 0 the sum of exp(score − m) so far o = 0 the sum of exp(score − m)
        · v so far"""


def score_row() -> Iterator[str]:
    keys = 16_384
    limit = 99 * 1024
    assert 4 * keys > KB48
    yield f"""
        A block keeps S scores in shared memory, 4·S bytes: at {num(keys)} keys that is {num(4 * keys)} bytes, more than
        the 48 KB a block gets without asking, and at {num(limit // 4 + 1)} keys more than there is at all.
    """
    yield f"""![Shared memory against keys: 4·S crosses 48 KB at {num(KB48 / 4)} and 99 KB at {num(limit / 4)}; one tile
        at a time is constant]"""
    yield "for a prompt of 1,000 tokens every key is fetched hundreds of times."
    yield "That is what made contexts of 100,000 tokens possible"


def tiles() -> Iterator[str]:
    queries, keys, tile = 10, 15, 4
    shift = keys - queries
    seen = [shift + i for i in range(tile)]
    walked = seen[-1] // tile
    last_block = [i for i in range(queries) if i // tile == queries // tile]
    yield f"""
        The figure in words: L = {queries}, S = {keys}, tiles of {tile} × {tile}, so S − L = {shift}. Block 0 has the
        queries 0 to {tile - 1}, which see the keys up to {many(seen[:3])} and {seen[3]}: it walks tiles 0, 1 and
        {walked} and never touches tile {walked + 1}. In tile 0 no mask is needed; tile 1 is masked in part; of tile
        {walked} query {tile - 1} sees one key and queries 0 to {tile - 2} none, yet their threads pass the same
        barriers. Block {queries // tile} has only the queries {many(last_block, between=" and ")}, and the last tile
        only three keys.
    """
    assert keys % tile == 3
    assert seen[-1] % tile == 0
    assert seen[0] < 2 * tile - 1
    assert seen[0] >= tile - 1
    yield "query i sees the keys j ≤ S − L + i."


def bytes_requested() -> Iterator[str]:
    row = HEAD_DIM * 2
    pairs = KEYS * (KEYS + 1) // 2
    tiles = -(-KEYS // 16)
    rows = sum(min((tile + 1) * 16, KEYS) for tile in range(tiles))
    once = HEADS * KEYS * row
    yield f"| {HEADS} query heads over {KV_HEADS}, D = {HEAD_DIM}, S = {num(KEYS)} keys | bytes requested of k |"
    yield f"""| stage 7, L = {num(KEYS)}: every seen key for every query, {num(pairs)} pairs a head |
        {num(HEADS * pairs * row)} |"""
    yield f"""| query tiles of 16, L = {num(KEYS)}: {tiles} tiles, which load {num(rows)} rows a head |
        {num(HEADS * rows * row)} |"""
    yield f"| L = 16, one query tile: {HEADS} · {num(KEYS)} · {HEAD_DIM} · 2 | {num(once)} |"
    yield f"| the limit of the check at L = 16: 1.1 times that | {num(once * 1.1)} |"


def plan() -> Iterator[str]:
    queries, keys, widest = 16, 32, 128
    rows, scores = (queries + 2 * keys) * widest * 4, queries * keys * 4
    assert rows + scores <= KB48
    yield f"""
        **A plan that works**, with 128 threads, {queries} queries and {keys} keys per tile. In shared memory: the
        queries [{queries}, D], a tile of keys [{keys}, D] and of values [{keys}, D] as float32, the scores [{queries},
        {keys}], and a factor per query. At D = {widest} the three tiles take ({queries} + {keys} + {keys}) · {widest} ·
        4 = {num(rows)} bytes and the scores {num(scores)}, together {num(rows + scores)} of {num(KB48)}.
    """
    each = queries * keys // 128
    yield f"The {queries * keys} scores are shared out, {['', '', '', '', 'four'][each]} to a thread"
    yield f"({queries} + {keys} + {keys}) · D · 4 bytes"


def races() -> Iterator[str]:
    second = 1 * HEAD_DIM + 32
    yield f"""Without it, with D = {HEAD_DIM}, thread {second} may begin tile 1 and store `keys[1][32]`, while thread 1
        still multiplies the `keys[1][32]` of tile 0"""
    yield f"threads 1 and {second} above"
    yield "also those whose query does not exist (L not a multiple of 16)"
    yield "A query that has seen no key yet is in the state (−∞, 0, 0)."
    yield "a query that sees no key at all (L > S), whose output is 0, not 0/0;"
    yield "And p = 0 does not protect: 0 · NaN is NaN."
    assert 128 // HEAD_DIM == 2
    assert (8 * 2) % 16 == 0
    yield f"(D = {HEAD_DIM} and 128 threads: two groups)"
    yield "Rows begin at multiples of 16 bytes, since D is a multiple of 8: a thread may read eight bf16"
    yield "so `__uint_as_float(bits << 16)` converts it."


def mistakes() -> Iterator[str]:
    none = [i for i in range(5) if 2 - 5 + i < 0]
    yield f"L = 5, S = 2: queries {many(none)}"
    yield f"S = 33 with tiles of 32: {64 - 33} rows of NaN"
    yield f"block 1, row 0 is query {1 * 16 + 0}"
    yield f"L = 1, S = 5 must visit key {5 - 1 + 0}"
    yield "L = 17: the second block has one query"
    assert 17 - 16 == 1
    yield f"`grid` for L = 16 must be {16 // 16} tile"
    vectors = 24 // 8
    yield f"128 threads, D = 24: groups of {vectors} vectors, {128 // vectors} groups, two threads idle"
    assert 128 % vectors == 2


EXAMPLES = (
    three_tiles, wrong_programs, merging, score_row, tiles, bytes_requested, plan, races, mistakes,
)  # fmt: skip
