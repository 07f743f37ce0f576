"""Stage 16: preemption on a pool that is too small, a step of the engine, and the integers that it sends."""

from collections.abc import Sequence

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, RED, VIOLET, WHITE, Figure

SIZE = 4

# What is stored after each step, as (request, tokens) of the blocks 0 to 4; the tokens given; who waits.
STEPS = (
    ("prefill A, B", "AABB.", {"A": 6, "B": 5}, "a0 b0", ""),
    ("decode A, B", "AABB.", {"A": 7, "B": 6}, "a1 b1", ""),
    ("decode A, B", "AABB.", {"A": 8, "B": 7}, "a2 b2", ""),
    ("decode A, B", "AABBA", {"A": 9, "B": 8}, "a3 b3", ""),
    ("preempt B; decode A", "AA..A", {"A": 10}, "a4", "B, 9 tokens"),
    ("decode A", "AA..A", {"A": 11}, "a5", "B, 9 tokens"),
    ("decode A: it ends", "AA..A", {"A": 12}, "a6", "B, 9 tokens"),
    ("prefill B over 9", "BBB..", {"B": 9}, "b4", ""),
    ("decode B", "BBB..", {"B": 10}, "b5", ""),
    ("decode B: it ends", "BBB..", {"B": 11}, "b6", ""),
)


def preemption() -> Figure:
    figure = Figure(
        "preemption", 800, 500, "Two requests in a pool of five blocks of four: one is preempted and recomputed",
        """
        A has a prompt of 6 tokens, B one of 5; each gets 7 new ones. Step 1 prefills both: 2 blocks each, 1 is free.
        In step 4 A's ninth token takes the last block. In step 5 B, which stores 8 tokens, would need a third block,
        and none is free: B, admitted last, is preempted. Its 2 blocks are free, it waits with its 5 + 4 tokens. A goes
        on and ends in step 7. In step 8 B is prefilled over all its 9 tokens, takes 3 blocks, and gets b4. It ends in
        step 10. B got nothing in the steps 5, 6 and 7.
        """,
    )  # fmt: skip
    left, width, top, step, height = 236, 68, 66, 38, 30
    for x, text in ((20, "step"), (left + 5 * width + 20, "gives"), (692, "waiting")):
        figure.text(x, 40, text, 13, anchor="start", bold=True)
    for block in range(5):
        figure.text(left + (block + 0.5) * width, 40, f"block {block}", 12, color=FAINT)
    for number, (event, owners, stored, given, waiting) in enumerate(STEPS):
        y = top + number * step
        color = RED if "preempt" in event else "#1f2328"
        figure.text(38, y + height / 2, str(number + 1), 12, anchor="end", color=color)
        figure.text(48, y + height / 2, event, 12, anchor="start", color=color)
        left_over = dict(stored)
        for block, owner in enumerate(owners):
            x = left + block * width
            figure.box(x, y, width - 4, height, dashed=True, stroke=FAINT)
            if owner == ".":
                figure.text(x + width / 2 - 2, y + height / 2, "free", 12, color=FAINT)
                continue
            held = min(SIZE, left_over[owner])
            left_over[owner] -= held
            fill = BLUE if owner == "A" else ORANGE
            figure.box(x, y, (width - 4) * held / SIZE, height, fill=fill)
            figure.text(x + (12 if held > 1 else 30), y + height / 2, f"{owner}{held}", 12, mono=True, bold=True)
        figure.text(left + 5 * width + 20, y + height / 2, given, 13, anchor="start", mono=True)
        figure.text(692, y + height / 2, waiting, 12, anchor="start", color=RED)
    figure.text(400, 462, "A3: three of the block's four rows hold tokens of A. B keeps its tokens, not its keys.", 13)
    figure.text(400, 484, "Step 8 computes 9 tokens in one pass: 8 of them for the second time.", 13, color=FAINT)
    return figure


def engine_step() -> Figure:
    figure = Figure(
        "engine-step", 800, 400, "One step of the engine: what the host does, what the GPU does, and who waits",
        """
        The host schedules: who decodes, who is admitted. It writes all integers of the pass into one page-locked buffer
        and starts one copy to the GPU. Then it launches the embedding, the operations of each layer, the head and
        argmax, without waiting for any of them; the GPU works them off in order, one behind the other. At the end the
        host starts a copy of B ids back and waits for it, the only time in the step. Then it gives the tokens to the
        requests, ends those that are done and frees their blocks.
        """,
    )  # fmt: skip
    figure.text(20, 34, "time →", 13, anchor="start", color=FAINT)
    figure.text(20, 94, "host", 14, anchor="start", bold=True)
    figure.text(20, 234, "GPU", 14, anchor="start", bold=True)
    host = (
        (70, 92, "schedule", GREY), (166, 92, "write\nintegers", GREY), (262, 196, "launch, launch, launch, …", GREEN),
        (462, 166, "wait", WHITE), (632, 150, "give tokens,\nend, free", GREY),
    )  # fmt: skip
    for x, width, label, fill in host:
        figure.box(x, 66, width, 56, label, fill=fill, size=13, radius=4, dashed=fill == WHITE)
    gpu = (
        (240, 52, "copy\nup", VIOLET), (296, 58, "embed-\nding", BLUE), (358, 60, "layer\n0", BLUE),
        (422, 60, "layer\n…", BLUE),
        (486, 66, "head,\nargmax", BLUE), (556, 68, "ids\nback", VIOLET),
    )  # fmt: skip
    for x, width, label, fill in gpu:
        figure.box(x, 206, width, 56, label, fill=fill, size=13, radius=4)
    figure.arrow((250, 122), (258, 206))
    figure.text(150, 162, "one copy up,\npage-locked", 12, color=FAINT)
    figure.arrow((324, 122), (324, 206), dashed=True)
    figure.arrow((400, 122), (388, 206), dashed=True)
    figure.arrow((448, 122), (500, 206), dashed=True)
    figure.arrow((624, 206), (634, 122))
    figure.text(708, 162, "B ids, 4 bytes each", 12, color=FAINT)
    figure.text(
        400, 306,
        "layer: rmsnorm · q k v · rope · write_kv · paged_attention · o · add · rmsnorm · gate up · silu · down · add",
        12, color=FAINT,
    )  # fmt: skip
    figure.text(
        400, 340, "Launches only queue work. The host waits once a step, for the ids, which it needs to go on.", 13
    )
    figure.text(
        400,
        366,
        "15 launches and products per layer and 4 more: 64 for the 4 layers of tiny, 244 for 16 layers, for any B.",
        13,
    )
    return figure


def step_integers() -> Figure:
    stored, tables, new = (9, 4, 6), ((5, 2, 7), (0, 1), (3, 6)), 1
    figure = Figure(
        "step-integers", 800, 360, "The integers of a decode step of three requests, in one buffer",
        """
        The pool and tables of stage 14: sequences 0, 1 and 2 hold 9, 4 and 6 tokens; blocks have 4 rows. Each gets one
        more token. Sequence 1 is at the end of its block and takes block 1. positions are 9, 4, 6; slot_mapping is 29,
        4, 26; context_lens is 10, 5, 7; the block tables, five entries wide, are 5 2 7, 0 1 and 3 6, followed by -1.
        With the three ids these are 27 integers, 108 bytes, which go up in one copy.
        """,
    )  # fmt: skip
    fills, top, step = (BLUE, ORANGE, GREEN), 70, 46
    positions = stored
    slots = [tables[row][count // SIZE] * SIZE + count % SIZE for row, count in enumerate(stored)]
    rows: tuple[tuple[str, Sequence[object], str], ...] = (
        ("ids", ["t", "u", "v"], "the last token of each request"),
        ("positions", list(positions), "how many tokens each has stored"),
        ("slot_mapping", slots, "7·4 + 1,  1·4 + 0,  6·4 + 2"),
        ("context_lens", [count + new for count in stored], "with the new token"),
    )
    for number, heading in enumerate(("sequence 0", "sequence 1", "sequence 2")):
        figure.text(160 + (number + 0.5) * 84, 44, heading, 12, color=FAINT)
    for number, (name, values, note) in enumerate(rows):
        y = top + number * step - 8
        figure.text(20, y + 16, name, 13, anchor="start", mono=True)
        figure.cells(160, y, 84, 32, values, fills, mono=True)
        figure.text(432, y + 16, note, 13, anchor="start", color=FAINT)
    y = top + len(rows) * step - 8
    figure.text(20, y + 16, "block_tables", 13, anchor="start", mono=True)
    narrow, taken = 40, (1, 1)
    for row, table in enumerate(tables):
        entries = [*table, *[-1] * (5 - len(table))]
        entry_fills = [
            PINK if (row, column) == taken else fills[row] if entry >= 0 else WHITE
            for column, entry in enumerate(entries)
        ]
        figure.cells(160 + row * (5 * narrow + 6), y, narrow, 32, entries, entry_fills, size=13, mono=True)
    figure.text(
        400, y + 56, "Pink: the block that sequence 1 has just taken, since its 4 tokens filled the first one.", 13
    )
    total = 4 * len(stored) + 5 * len(stored)
    figure.text(
        400,
        y + 84,
        f"3 + 3 + 3 + 3 + 15 = {total} integers, {4 * total} bytes, side by side in one buffer: one copy.",
        13,
        bold=True,
    )
    return figure
