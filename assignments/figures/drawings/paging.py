"""Stages 14 and 15: memory in rows and in blocks, block tables, the border of a block, and attention's walk."""

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, RED, VIOLET, WHITE, Figure

COLOURS = (BLUE, ORANGE, GREEN, VIOLET, PINK)
EDGE = "#b9c0c7"

LENGTHS = (23, 9, 40, 14, 31, 5, 18, 27, 30)
POSITIONS, ROW, BLOCK = 256, 64, 16

TABLES = ((5, 2, 7), (0,), (3, 6))
TOKENS = (9, 4, 6)
SIZE, BLOCKS = 4, 8


def rows_and_blocks() -> Figure:
    figure = Figure(
        "rows-and-blocks", 800, 390, "The same 256 positions as four slots of 64 and as sixteen blocks of 16",
        """
        Requests A to I have 23, 9, 40, 14, 31, 5, 18, 27 and 30 tokens; none may grow beyond 64. As slots of 64 the
        memory holds 4 requests, A to D, of 86 tokens: 170 positions are kept free for tokens that may never come. As
        blocks of 16 the nine take 2, 1, 3, 1, 2, 1, 2, 2 and 2 blocks, all 16, with 197 tokens; 59 positions are empty,
        only in the last block of each.
        """,
    )  # fmt: skip
    unit, top, height, step = 5.4, 64, 44, 58
    width = ROW * unit
    for left, heading in ((30, "slots of 64: 4 requests run"), (424, "blocks of 16: 9 requests run")):
        figure.text(left + width / 2, 28, heading, bold=True)
    for row in range(POSITIONS // ROW):
        y, used = top + row * step, LENGTHS[row] * unit
        figure.box(30, y, width, height, fill=WHITE, stroke=RED, dashed=True)
        figure.box(30, y, used, height, f"{'ABCD'[row]}", fill=COLOURS[row], size=13, mono=True, bold=True)
        figure.text(30 + used + 8, y + height / 2, f"{ROW - LENGTHS[row]} empty", 12, color=RED, anchor="start")
    block = 0
    for number, length in enumerate(LENGTHS):
        for first in range(0, length, BLOCK):
            x, y = 424 + block % 4 * BLOCK * unit, top + block // 4 * step
            used = min(BLOCK, length - first)
            figure.box(x, y, BLOCK * unit, height, fill=WHITE, stroke=RED, dashed=True)
            figure.box(x, y, used * unit, height, fill=COLOURS[number % 5])
            at = x + 14 if used > 4 else x + used * unit + 14
            figure.text(at, y + height / 2, f"{'ABCDEFGHI'[number]}{first // BLOCK}", 12, mono=True, bold=True)
            figure.box(x, y, BLOCK * unit, height, fill="none")
            block += 1
    held = sum(LENGTHS[:4])
    for x, used in ((30 + width / 2, held), (424 + width / 2, sum(LENGTHS))):
        figure.text(x, 308, f"{used} of {POSITIONS} positions hold a token: {used / POSITIONS:.0%}", 13)
    figure.text(
        400,
        342,
        "Both have room for 256 tokens. A slot is as long as the longest context, from the beginning;",
        13,
        color=FAINT,
    )
    figure.text(400, 364, "a block is taken when its first token comes.", 13, color=FAINT)
    return figure


def block_tables() -> Figure:
    figure = Figure(
        "block-tables", 800, 430, "Three sequences, their block tables, and the pool of eight blocks of four rows",
        """
        A pool of 8 blocks of 4 rows. Sequence 0 has 9 tokens and the block table 5, 2, 7; sequence 1 has 4 tokens and
        the table 0; sequence 2 has 6 tokens and the table 3, 6. Blocks 1 and 4 are free. Position 6 of sequence 0 is in
        its block number 6 // 4 = 1, which is block 2 of the pool, at offset 6 % 4 = 2: row 2 times 4 plus 2 is 10.
        Positions 6, 7 and 8 have the rows 10, 11 and 28.
        """,
    )  # fmt: skip
    figure.text(20, 28, "block_table(sequence)", 13, anchor="start", mono=True)
    for sequence, table in enumerate(TABLES):
        y = 50 + sequence * 44
        figure.text(20, y + 16, f"sequence {sequence}: {TOKENS[sequence]} tokens", 13, anchor="start")
        figure.cells(190, y, 44, 32, table, COLOURS[sequence], mono=True)
    figure.text(400, 28, "position 6 of sequence 0", 13, anchor="start", bold=True)
    for line, text in enumerate((
        "6 // 4 = 1    second entry of its table",
        "table[1] = 2  block 2 of the pool",
        "6 % 4  = 2    third row of that block",
        "2 · 4 + 2 = 10",
    )):  # fmt: skip
        figure.text(400, 58 + line * 26, text, 13, anchor="start", mono=True)
    figure.text(400, 166, "positions 6, 7, 8 → rows 10, 11, 28", 13, anchor="start", mono=True, bold=True)
    left, top, width, height = 60, 218, 84, 30
    figure.text(20, 198, "the pool [num_blocks = 8, block_size = 4, Hkv, D]: row, and whose position lies there", 13,
                anchor="start")  # fmt: skip
    owners = {block: (sequence, index) for sequence, table in enumerate(TABLES) for index, block in enumerate(table)}
    for block in range(BLOCKS):
        x = left + block * (width + 5)
        name = f"block {block}"
        figure.text(x + width / 2, top + 8, name, 12, bold=True, color=FAINT if block not in owners else "#1f2328")
        for offset in range(SIZE):
            y, row = top + 22 + offset * height, block * SIZE + offset
            sequence, index = owners.get(block, (-1, 0))
            position = index * SIZE + offset
            held = sequence >= 0 and position < TOKENS[sequence]
            chosen = sequence == 0 and 6 <= position < TOKENS[0]
            figure.box(
                x, y, width, height, f"{row:>2} s{sequence} p{position}" if held else f"{row:>2}",
                fill=COLOURS[sequence] if held else WHITE, size=12, mono=True, dashed=not held,
                stroke=RED if chosen else "#1f2328" if held else FAINT, thick=2 if chosen else 1,
                color="#1f2328" if held else FAINT,
            )  # fmt: skip
        if block not in owners:
            figure.text(x + width / 2, top + 22 + SIZE * height + 12, "free", 12, color=FAINT)
    figure.text(
        400, 400, "row = block · block_size + offset. Dashed: no token there. Red: rows 10, 11 and 28.", 13, bold=True
    )
    return figure


def block_boundary() -> Figure:
    figure = Figure(
        "block-boundary", 800, 300, "Fifteen, sixteen and seventeen tokens in blocks of sixteen",
        """
        With 15 tokens a sequence has 1 block with one empty row. The append that makes 16 takes no block: the last row
        of the first one is used. The append that makes 17 takes a second block, which then holds one token. The number
        of blocks is the number of tokens divided by 16, rounded up: 1, 1, 2.
        """,
    )  # fmt: skip
    left, unit, top, step = 140, 15, 66, 66
    figure.text(left + 8 * unit, 36, "first block", 13, color=FAINT)
    figure.text(left + 24.5 * unit, 36, "second block", 13, color=FAINT)
    notes = ("next append: room in the block", "next append: takes a block", "room for 15 more")
    for row, tokens in enumerate((15, 16, 17)):
        y = top + row * step
        figure.text(20, y + 17, f"{tokens} tokens", 13, anchor="start", bold=True)
        for position in range(32):
            here = position < tokens
            there = position < -(-tokens // BLOCK) * BLOCK
            x = left + position * unit + (8 if position >= BLOCK else 0)
            if there:
                fill = ORANGE if position == tokens - 1 and row else BLUE if here else WHITE
                figure.box(x, y, unit, 34, fill=fill, dashed=not here)
        figure.text(712, y + 9, f"cdiv({tokens}, 16) = {-(-tokens // BLOCK)}", 12, mono=True)
        figure.text(left, y + 48, notes[row], 12, anchor="start", color=FAINT)
    figure.text(
        400, 278, "Orange: the token that append made room for. What counts is the total, not the increment.", 13
    )
    return figure


def paged_walk() -> Figure:
    table, context = (5, 2, 7, 3, 6), 10
    figure = Figure(
        "paged-walk", 800, 470, "One query walks through its block table; two entries behind its context are stale",
        """
        block_size is 4, the context has 10 tokens, so it needs 3 blocks. The row of block_tables is 5, 2, 7, 3, 6: the
        entries 3 and 6 are left from an earlier request and must not be followed. Positions 0 to 3 are rows 20 to 23,
        in block 5; positions 4 to 7 are rows 8 to 11, in block 2; positions 8 and 9 are rows 28 and 29, in block 7. The
        rows 30 and 31 of block 7 hold anything, NaN too, and are not read. Blocks 3 and 6 belong to somebody else.
        """,
    )  # fmt: skip
    figure.text(20, 62, "block_tables[b]", 13, anchor="start", mono=True)
    x, width = 150, 86
    needed = -(-context // SIZE)
    for index, block in enumerate(table):
        used = index < needed
        figure.box(x + index * width, 44, width, 36, str(block), fill=COLOURS[index] if used else PINK, mono=True,
                   dashed=not used, stroke="#1f2328" if used else RED)  # fmt: skip
    figure.text(600, 54, f"context_lens[b] = {context}", 13, anchor="start", mono=True)
    figure.text(600, 76, f"so {needed} entries count", 13, anchor="start", color=FAINT)
    left, pool_width, top, height = 24, 90, 160, 28
    for block in range(BLOCKS):
        at = left + block * (pool_width + 5)
        index = table.index(block) if block in table else -1
        used = 0 <= index < needed
        figure.text(at + pool_width / 2, top - 12, f"block {block}", 12, bold=used)
        for offset in range(SIZE):
            row, position = block * SIZE + offset, index * SIZE + offset
            read = used and position < context
            label = f"{row:>2}  j = {position}" if read else f"{row:>2}  NaN" if used else f"{row:>2}"
            figure.box(
                at, top + offset * height, pool_width, height, label, size=12, mono=True,
                fill=COLOURS[index] if read else WHITE if used or index < 0 else GREY, dashed=used and not read,
                stroke=RED if used and not read else "#1f2328" if read else EDGE, color="#1f2328" if read else FAINT,
            )  # fmt: skip
        if used:
            start = (x + (index + 0.5) * width, 82)
            figure.arrow(
                start, (start[0], 94 + 12 * index), (at + pool_width / 2, 94 + 12 * index), (at + pool_width / 2, 136)
            )
        elif index >= 0:
            figure.text(at + pool_width / 2, top + SIZE * height + 14, "another's", 12, color=FAINT)
    figure.bracket(x + needed * width + 2, x + len(table) * width, 42, "stale: not read", below=False)
    _draw_rows(figure, table, context)
    figure.text(400, 418, "row = block_tables[b, j / block_size] · block_size + j % block_size", 13, mono=True)
    figure.text(
        400,
        446,
        "The walk ends with the context, in the middle of block 7: rows 30 and 31 are never touched.",
        13,
        color=FAINT,
    )
    return figure


def _draw_rows(figure: Figure, table: tuple[int, ...], context: int) -> None:
    """The arithmetic from each position of the context to its row of the pool."""
    figure.text(20, 316, "position j", 13, anchor="start", mono=True)
    figure.text(20, 346, "j // 4, j % 4", 13, anchor="start", mono=True)
    figure.text(20, 376, "row", 13, anchor="start", mono=True)
    for column in range(context):
        at, fill = 150 + column * 62, COLOURS[column // SIZE]
        block, offset = table[column // SIZE], column % SIZE
        figure.box(at, 302, 62, 28, str(column), fill=fill, size=13, mono=True)
        figure.box(at, 332, 62, 28, f"{column // SIZE}, {offset}", fill=fill, size=13, mono=True)
        figure.box(at, 362, 62, 28, str(block * SIZE + offset), fill=fill, size=13, mono=True, bold=True)


def tiles_and_blocks() -> Figure:
    figure = Figure(
        "tiles-and-blocks", 800, 330, "Tiles of 32 keys over blocks of 8, 16 and 32: each key finds its own block",
        """
        A context of 40 tokens, walked in tiles of 32 keys: tile 0 has the keys 0 to 31, tile 1 the keys 32 to 39. With
        blocks of 8 tile 0 covers four blocks and tile 1 one; with blocks of 16 two and half of one, whose other 8
        positions are unused; with blocks of 32 one and a quarter of one, with 24 unused. Tiles are a matter of the
        kernel, blocks of the cache; no thread needs them to agree, since key j looks in entry j // block_size.
        """,
    )  # fmt: skip
    context, tile, unit, left = 40, 32, 10, 130
    for start in range(0, context, tile):
        end = min(start + tile, context)
        figure.box(left + start * unit, 40, (end - start) * unit, 32, f"tile {start // tile}", fill=GREY, size=13)
        figure.text(left + (start + end) / 2 * unit, 26, f"keys {start} … {end - 1}", 12, color=FAINT)
    figure.text(20, 56, "the kernel", 13, anchor="start")
    for row, size in enumerate((8, 16, 32)):
        y = 100 + row * 56
        figure.text(20, y + 18, f"block_size {size}", 13, anchor="start", mono=True)
        for index in range(-(-context // size)):
            start, end = index * size, min((index + 1) * size, context)
            figure.box(left + start * unit, y, (end - start) * unit, 36, f"[{index}]",
                       fill=COLOURS[index % 5], size=13, mono=True)  # fmt: skip
            if end < (index + 1) * size:
                unused = (index + 1) * size - end
                label = f"{unused} unused"
                figure.box(left + end * unit, y, unused * unit, 36, label, size=12, dashed=True, color=FAINT)
    figure.line((left + tile * unit, 76), (left + tile * unit, 256), color=RED, dashed=True)
    figure.text(
        400, 284, "Thread i of a tile has key j = tile · 32 + i, and reads entry j / block_size of the table.", 13
    )
    figure.text(
        400, 308, "Neither number has to divide the other, and 16 is only what most engines take.", 13, color=FAINT
    )
    return figure
