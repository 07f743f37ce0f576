"""The numbers of 14-block-manager.md."""

from collections.abc import Iterator

from tests.handouts.formats import many, num

LENGTHS = [23, 9, 40, 14, 31, 5, 18, 27, 30]
POSITIONS, LONGEST, BLOCK = 256, 64, 16
TABLES, TOKENS, SIZE = ([5, 2, 7], [0], [3, 6]), [9, 4, 6], 4
"""The pool of the second figure."""


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def row_of(table: list[int], position: int, size: int) -> int:
    return table[position // size] * size + position % size


def slots_and_blocks() -> Iterator[str]:
    count = POSITIONS // LONGEST
    held, blocks = sum(LENGTHS[:count]), [cdiv(length, BLOCK) for length in LENGTHS]
    assert sum(blocks) == POSITIONS // BLOCK
    yield f"""
        The figure in words: memory for {POSITIONS} positions, and requests of {many(LENGTHS[:-1])} and {LENGTHS[-1]}
        tokens, none of which may grow beyond {LONGEST}. As slots of {LONGEST} the memory holds the first {count}:
        {held} tokens, {100 * held / POSITIONS:.0f} %, and {POSITIONS - held} positions stay empty. As blocks of {BLOCK}
        the nine need {many(blocks[:-1])} and {blocks[-1]} blocks, all {sum(blocks)} of them: {sum(LENGTHS)} tokens,
        {100 * sum(LENGTHS) / POSITIONS:.0f} %. Now only the *last* block of each request has empty positions,
        {BLOCK - 1} at the most.
    """
    yield f"""![The same {POSITIONS} positions: four slots of {LONGEST} hold {count} requests, sixteen blocks of
        {BLOCK} hold nine]"""


def requests_at_once() -> Iterator[str]:
    token = 2 * 16 * 8 * 64 * 2
    positions = 8 * 2**30 // token
    each = cdiv(300, BLOCK)
    yield "| Llama 3.2 1B, 8 GiB for keys and values | | requests at once |"
    yield f"| positions | 8 GiB / {token // 1024} KiB = {num(positions)} | |"
    yield f"| slots of {num(4096)} positions | {num(positions)} / {num(4096)} | {positions // 4096} |"
    yield f"""| blocks of {BLOCK}, contexts of 300 tokens | {num(positions // BLOCK)} blocks, {each} for each |
        {positions // BLOCK // each} |"""


def growth() -> Iterator[str]:
    for n, count in ((10, 5), (15, 1), (16, 1), (10, 40), (15, 18), (15, 17)):
        before, after, wrong = cdiv(n, BLOCK), cdiv(n + count, BLOCK), cdiv(count, BLOCK)
        note = ": one too many" if wrong == after - before + 1 else ""
        assert wrong - (after - before) in (0, 1)
        yield f"| {n} | {count} | {before} | {after} | {after - before} | {wrong}{note} |"
    blocks = {n: {1: "one block", 2: "two blocks"}[cdiv(n, BLOCK)] for n in (15, 16, 17)}
    yield f"![{many(list(blocks)[:2])} and 17 tokens in blocks of {BLOCK}: {', '.join(blocks.values())}]"
    yield f"""
        The figure in words: 15 tokens are {blocks[15]} with one empty row. The append that makes 16 uses that row and
        takes no block. The append that makes 17 takes a second block, in which it is the first token.
    """
    yield "10 + 5 in blocks of 16: none; 15 + 1: none"
    yield "16 + 1: one"
    yield "10 + 40: three"


def tables() -> Iterator[str]:
    free = sorted(set(range(8)) - {block for table in TABLES for block in table})
    assert [cdiv(n, SIZE) for n in TOKENS] == [len(table) for table in TABLES]
    position = 6
    entry, offset = divmod(position, SIZE)
    block = TABLES[0][entry]
    mapped = [row_of(TABLES[0], p, SIZE) for p in range(position, TOKENS[0])]
    yield f"""
        The figure in words: a pool of 8 blocks of {SIZE} rows. Sequence 0 has {TOKENS[0]} tokens and the table
        {many(TABLES[0])}; sequence 1 has {TOKENS[1]} tokens and the table {many(TABLES[1])}; sequence 2 has {TOKENS[2]}
        tokens and the table {many(TABLES[2])}; blocks {many(free, between=" and ")} are free. Position p of a sequence
        is in entry p // {SIZE} of its table, at offset p % {SIZE}, and its *row* in the pool, counted through, is block
        · {SIZE} + offset. Position {position} of sequence 0: entry {entry} is block {block}, offset {offset}, so row
        {block} · {SIZE} + {offset} = {mapped[0]}. `slot_mapping(0, {position})` gives the rows of positions 6, 7 and 8:
        {many(mapped)}.
    """
    yield f"""![A pool of 8 blocks of {SIZE} rows, three sequences with their tables; position {position} of
        sequence 0 is row {mapped[0]}]"""
    table, rows = [7, 1, 4], {}
    for p in (0, 15, 16, 31, 32, 34):
        rows[p] = row_of(table, p, BLOCK)
    yield f"""
        With blocks of {BLOCK} and the table {many(table)}, a sequence of 35 tokens has position 0 in row {rows[0]}, 15
        in {rows[15]}, 16 in {rows[16]}, 31 in {rows[31]}, 32 in {rows[32]} and 34 in {rows[34]}.
    """


def calls() -> Iterator[str]:
    """The example of the contract, played with lengths alone."""
    pool, size = 5, 4
    lengths: dict[int, int] = {}

    def blocks(sequence: int) -> int:
        return cdiv(lengths[sequence], size)

    def free() -> int:
        return pool - sum(map(blocks, lengths))

    def state(sequence: int) -> str:
        return f"{lengths[sequence]}, {blocks(sequence)}"

    yield f"An example, with {pool} blocks of {size} tokens."
    yield "| call | result | sequence 0 | sequence 1 | `num_free()` |"
    lengths[0] = 6
    yield f"| `allocate(0, 6)` | | {lengths[0]} tokens, {blocks(0)} blocks | | {free()} |"
    assert cdiv(13, size) > free()
    yield f"| `allocate(1, 13)` | `OutOfBlocks`: {cdiv(13, size)} needed | {state(0)} | still unknown | {free()} |"
    lengths[0] += 2
    assert lengths[0] % size == 0
    yield f"| `append(0, 2)` | the last block is full now | {state(0)} | | {free()} |"
    lengths[0] += 1
    yield f"| `append(0)` | | {state(0)} | | {free()} |"
    lengths[1] = 8
    yield f"| `allocate(1, 8)` | | {state(0)} | {state(1)} | {free()} |"
    assert lengths[1] % size == 0
    assert free() == 0
    yield f"| `append(1)` | `OutOfBlocks` | {state(0)} | {state(1)} | {free()} |"
    del lengths[0]
    yield f"| `free(0)` | | unknown | {state(1)} | {free()} |"
    had, lengths[1] = blocks(1), lengths[1] + 5
    assert blocks(1) - had == 2
    yield f"| `append(1, 5)` | {lengths[1]} tokens: {blocks(1)} blocks, two more | | {state(1)} | {free()} |"
    yield f"| `free(0)` | `ValueError` | | {state(1)} | {free()} |"
    yield f"| `slot_mapping(1, {lengths[1]})` | {[*range(13, lengths[1])]} | | {state(1)} | {free()} |"


EXAMPLES = (slots_and_blocks, requests_at_once, growth, tables, calls)
