"""The numbers of 15-paged-attention.md."""

from collections.abc import Iterator

from tests.handouts.examples.s07 import KEYS, SCALE, VALUES, Q, attend, short, squares
from tests.handouts.examples.s14 import cdiv, row_of
from tests.handouts.formats import many, num


def three_keys() -> Iterator[str]:
    table, size, context = [3, 1], 2, 3
    keys, values = squares(KEYS), squares(VALUES)
    yield f"""
        By hand, with blocks of {size} rows and the keys and values of stage 7: {", ".join(keys)} and
        {", ".join(values)}. The block table is {many(table)} and the context {context}:
    """
    yield f"| j | j / {size} | block | j % {size} | row | key | value |"
    for j in range(context):
        entry, offset = divmod(j, size)
        yield f"""| {j} | {entry} | {table[entry]} | {offset} | {row_of(table, j, size)} | {keys[j]} | {values[j]} |"""
    scores, p, out = attend(Q[1], KEYS, VALUES)
    _, _, other = attend(Q[0], KEYS[:size], VALUES[:size])
    yield f"""
        The query {squares(Q)[1]} with scale {SCALE:.5f} has scores {short(scores)}, p = {short(p)} and output
        {short(out)}, as in stages 7 and 9. Row {row_of(table, context, size)}, the other one of block {table[1]}, was
        never written. It is NaN, and must not be read. A second sequence may have block {table[0]} in *its* table as
        well, with the table {table[0]} and a context of {size}, say: the query {squares(Q)[0]} gives {short(other)}.
    """
    yield "for j = 0 … context_lens[b] − 1"


def walk() -> Iterator[str]:
    table, size, context = [5, 2, 7, 3, 6], 4, 10
    count = cdiv(context, size)
    rows = [row_of(table, j, size) for j in range(context)]
    behind = [row_of(table, j, size) for j in range(context, count * size)]
    yield f"""
        The figure in words: block_size {size}, context {context}, so three entries count: {many(table[:count])}.
        Positions 0 to 3 are the rows {rows[0]} to {rows[3]}, positions 4 to 7 the rows {rows[4]} to {rows[7]},
        positions 8 and 9 the rows {rows[8]} and {rows[9]}. The rows {many(behind, between=" and ")} of block
        {table[count - 1]} hold anything, and the entries behind the third are *stale*: left from an earlier request, −1
    """
    assert count == 3
    yield f"""![A table {many(table)} and a context of {context} in blocks of {size}: rows {rows[0]}–{rows[3]},
        {rows[4]}–{rows[7]}, {rows[8]}, {rows[9]}; two entries are stale]"""
    yield f"context 15 and 17; the figure's rows {many(behind, between=' and ')}"
    yield f"table {many(table[:count])}, 2³⁰, −1 with context {context}"
    yield f"table {many(table[:count])} |"


def tiles() -> Iterator[str]:
    words = {4: "four", 2: "two", 1: "one"}
    covered = [words[32 // size] for size in (8, 16, 32)]
    yield f"""
        The figure in words: a context of 40 keys in tiles of 32. Tile 0 covers {covered[0]} blocks of 8, {covered[1]}
        of 16 or {covered[2]} of 32.
    """


def addresses() -> Iterator[str]:
    block = 16 * 8 * 64
    yield f"""
        With blocks of 16 tokens, 8 heads of 64: a block has {num(block)} elements, and block {num(2**31 // block)}
        begins at element 2³¹. So `(long long)block * block_size`, before anything is multiplied. `slot_mapping` and
        tables are int32 themselves
    """
    yield f"block {num(2**31 // (16 * 4 * 64))} of 16 rows, 4 heads of 64"
    yield "B = 2, M = 4"
    token = 2 * 16 * 8 * 64 * 2
    yield "With blocks of 16 tokens a sequence has as many as it needs"
    yield f"""for Llama 3.2 1B at a context of {num(1000)} tokens that would be {num(1000 * token / 1024 / 1000)} MB per
        sequence, read *and* written in every step, to produce one token. So the kernel itself has to find its way. That
        is the idea of the paper on PagedAttention and vLLM (Kwon and others, 2023), and the price of it is small: one
        integer read per key, next to 2 · D numbers of key and value."""


def slot_mapping() -> Iterator[str]:
    size = 4
    yield f"| sequence | table | holds | new tokens | positions | slot_mapping, block_size {size} |"
    table, held, new = [5, 2, 7], 7, 2
    positions = range(held, held + new)
    rows = [f"{table[p // size]}·{size} + {p % size} = {row_of(table, p, size)}" for p in positions]
    yield f"| 0 | {many(table)} | {held} | {new} | {many(positions)} | {', '.join(rows)} |"
    rows = [str(row_of([0], p, size)) for p in range(3)]
    yield f"| 1 | 0 | 0 | 3 | {many(range(3))} | {', '.join(rows)} |"


EXAMPLES = (three_keys, walk, tiles, addresses, slot_mapping)
