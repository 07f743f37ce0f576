"""Stage 12: several prompts in one pass: packed or padded, who sees whom, and what a static batch leaves unused."""

from itertools import accumulate

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, RED, VIOLET, WHITE, Figure

COLOURS = (BLUE, ORANGE, GREEN, VIOLET)
EDGE = "#b9c0c7"


def packed_mask() -> Figure:
    lengths = (3, 1, 4)
    ends = [0, *accumulate(lengths)]
    owners = [number for number, length in enumerate(lengths) for _ in range(length)]
    figure = Figure(
        "packed-mask", 800, 470, "Three prompts packed into one array of eight tokens, and their mask",
        """
        Prompts A, B and C of 3, 1 and 4 tokens lie one behind the other: A0 A1 A2 B0 C0 C1 C2 C3. cu_seqlens is 0, 3,
        4, 8: sequence b has the rows cu_seqlens[b] up to, not including, cu_seqlens[b + 1]. Positions begin anew in
        each: 0 1 2, 0, 0 1 2 3. The last rows are 2, 3 and 7. Each query sees the keys of its own prompt up to itself:
        three triangles along the diagonal, nothing beside them.
        """,
    )  # fmt: skip
    names = [f"{'ABC'[owner]}{row - ends[owner]}" for row, owner in enumerate(owners)]
    fills = [COLOURS[owner] for owner in owners]
    left, width = 150, 76
    for y, label, values in (
        (44, "row", range(8)),
        (84, "token", names),
        (124, "position", [row - ends[owner] for row, owner in enumerate(owners)]),
    ):
        figure.text(14, y + 17, label, 13, anchor="start", color=FAINT)
        figure.cells(left, y, width, 34, values, fills, mono=True)
    for end in ends:
        figure.arrow((left + end * width, 24), (left + end * width, 42), color=RED)
        figure.text(left + end * width + 8, 28, str(end), 13, mono=True, bold=True, color=RED, anchor="start")
    figure.text(14, 28, "cu_seqlens", 13, anchor="start", color=RED, mono=True)
    cell, top, mask = 30, 202, 96
    figure.text(mask + 4 * cell, 178, "key", 12, color=FAINT)
    for query in range(8):
        figure.text(mask - 8, top + (query + 0.5) * cell, names[query], 12, mono=True, anchor="end")
        figure.text(mask + (query + 0.5) * cell, top - 10, names[query], 12, mono=True)
        for key in range(8):
            seen = owners[key] == owners[query] and key <= query
            own = owners[key] == owners[query]
            fill = fills[query] if seen else PINK if own else WHITE
            figure.box(mask + key * cell, top + query * cell, cell, cell, "•" if seen else "", fill=fill, stroke=EDGE)
    for number, length in enumerate(lengths):
        x, y = mask + ends[number] * cell, top + ends[number] * cell
        size = length * cell
        figure.line((x, y), (x + size, y), (x + size, y + size), (x, y + size), (x, y), thick=2.2)
    figure.text(
        400, 252,
        "coloured: seen\npink: own prompt, but later: masked\nwhite: another prompt: not even read", 13, anchor="start",
    )  # fmt: skip
    figure.text(
        400, 350,
        "last rows, whose logits are wanted:\ncu_seqlens[1:] − 1 = 2, 3, 7\n\nrows of the matrix products: 8", 13,
        anchor="start",
    )  # fmt: skip
    return figure


def padding_and_packing() -> Figure:
    lengths = (7, 2, 4, 1)
    longest, total = max(lengths), sum(lengths)
    figure = Figure(
        "padding-and-packing", 800, 360, "Four prompts, padded to one length and packed",
        """
        Prompts of 7, 2, 4 and 1 tokens. Padded, they are a matrix of 4 x 7 = 28 rows, of which 14 are padding that is
        computed and thrown away. Packed, they are 14 rows one behind the other, with cu_seqlens 0, 7, 9, 13, 14.
        """,
    )  # fmt: skip
    cell, left, top = 40, 60, 66
    figure.text(left + longest * cell / 2, 30, "padded: [B, longest]", bold=True)
    for number, length in enumerate(lengths):
        for position in range(longest):
            used = position < length
            label = f"{'ABCD'[number]}{position}" if used else "pad"
            figure.box(
                left + position * cell, top + number * cell, cell, cell, label,
                fill=COLOURS[number] if used else GREY, size=12, mono=True, color="#1f2328" if used else FAINT,
            )  # fmt: skip
    figure.text(
        420, top + 2 * cell,
        f"{len(lengths)} · {longest} = {longest * len(lengths)} rows in every matrix product,\n"
        f"{longest * len(lengths) - total} of them padding.\n\nThe padding needs a mask of its own,\n"
        "and must not reach the cache.",
        13, anchor="start",
    )  # fmt: skip
    width = 48
    figure.text(left + total * width / 2, 256, f"packed: [T = {total}]", bold=True)
    ends = [0, *accumulate(lengths)]
    for number, length in enumerate(lengths):
        for position in range(length):
            figure.box(
                left + (ends[number] + position) * width, 276, width, 36, f"{'ABCD'[number]}{position}",
                fill=COLOURS[number], size=12, mono=True,
            )  # fmt: skip
    for end in ends:
        figure.text(left + end * width, 330, str(end), 13, mono=True, color=RED)
    figure.text(14, 346, "cu_seqlens", 12, anchor="start", mono=True, color=RED)
    return figure


def varlen_blocks() -> Figure:
    lengths, tile = (5, 1, 6), 4
    ends = [0, *accumulate(lengths)]
    blocks = -(-ends[-1] // tile) + len(lengths)
    figure = Figure(
        "varlen-blocks", 800, 340, "Blocks of a launch and the tiles of queries that they find",
        """
        Three sequences of 5, 1 and 6 queries, tiles of 4. A tile never reaches into the next sequence: sequence 0 has
        the tiles of 4 and 1 queries, sequence 1 one of 1, sequence 2 those of 4 and 2: five tiles. The launch knows
        only T = 12 and B = 3 and starts cdiv(12, 4) + 3 = 6 blocks for each head. Block 0 and 1 take sequence 0, block
        2 sequence 1, blocks 3 and 4 sequence 2; block 5 finds nothing to do and returns.
        """,
    )  # fmt: skip
    left, width, y = 76, 56, 66
    for sequence, length in enumerate(lengths):
        x = left + ends[sequence] * width
        figure.bracket(
            x + 3, x + length * width - 3, y - 10, f"sequence {sequence}" if length > 1 else "1", below=False
        )
        figure.cells(x, y, width, 36, range(ends[sequence], ends[sequence + 1]), COLOURS[sequence], mono=True)
    figure.text(14, y + 18, "query", 13, anchor="start", color=FAINT)
    number = 0
    box_width, box_y = 112, 186
    for sequence, length in enumerate(lengths):
        for start in range(0, length, tile):
            size = min(tile, length - start)
            x1 = left + (ends[sequence] + start) * width
            x2 = x1 + size * width
            x = 34 + number * (box_width + 12)
            figure.line((x1 + 4, y + 42), (x1 + 4, y + 48), (x2 - 4, y + 48), (x2 - 4, y + 42), color=FAINT)
            figure.arrow((x + box_width / 2, box_y - 2), ((x1 + x2) / 2, y + 50))
            figure.box(x, box_y, box_width, 58, f"block {number}\nseq {sequence}, tile {start // tile}",
                       fill=COLOURS[sequence], size=12, mono=True)  # fmt: skip
            number += 1
    for spare in range(number, blocks):
        x = 34 + spare * (box_width + 12)
        figure.box(x, box_y, box_width, 58, f"block {spare}\nnothing", fill=GREY, size=12, mono=True, dashed=True)
    figure.text(
        400, 276, f"grid in x: cdiv(T, tile) + B = cdiv({ends[-1]}, {tile}) + {len(lengths)} = {blocks}", mono=True
    )
    figure.text(
        400, 308, "Each sequence wastes less than one tile, so that many blocks are always enough; some find nothing.",
        13, color=FAINT,
    )  # fmt: skip
    return figure


def static_batch() -> Figure:
    answers = (3, 8, 5, 2)
    figure = Figure(
        "static-batch", 800, 330, "A static batch of four requests goes on until the longest has ended",
        """
        Four requests with answers of 3, 8, 5 and 2 tokens, in one batch. One at a time they take 3 + 8 + 5 + 2 = 18
        passes after one another; as a batch 8, the length of the longest. Of 4 x 8 = 32 places 18 give a token that is
        wanted; 14 stay empty, until the batch is over and the next one may begin.
        """,
    )  # fmt: skip
    left, cell, top = 130, 62, 70
    steps = max(answers)
    for step in range(steps):
        figure.text(left + (step + 0.5) * cell, 50, f"pass {step + 1}", 12, color=FAINT)
    for slot, answer in enumerate(answers):
        y = top + slot * 42
        figure.text(14, y + 18, f"request {'ABCD'[slot]}", 13, anchor="start")
        for step in range(steps):
            used = step < answer
            figure.box(left + step * cell, y, cell - 3, 36, f"{'ABCD'[slot]}{step + 1}" if used else "",
                       fill=COLOURS[slot] if used else WHITE, size=13, mono=True, dashed=not used,
                       stroke="#1f2328" if used else FAINT)  # fmt: skip
        figure.text(left + steps * cell + 14, y + 18, f"{answer} tokens", 13, anchor="start", color=FAINT)
    total = sum(answers)
    figure.text(400, 264, f"one at a time: {total} passes      as a batch: {steps} passes", bold=True)
    figure.text(
        400, 294, f"{total} of {steps * len(answers)} places give a token; the dashed ones wait for request B. "
        "(Stage 13 fills them.)", 13, color=FAINT,
    )  # fmt: skip
    return figure
