"""Stage 2: rows gathered from a table, and how the lanes of a warp share 32-byte sectors."""

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, Figure


def embedding_gather() -> Figure:
    figure = Figure(
        "embedding-gather", 800, 300, "Embedding copies one table row per token",
        """
        The ids are 2, 0, 2. The table has 4 rows of 3 elements. Block 0 copies table row 2 to row 0 of out,
        block 1 copies row 0 to row 1, block 2 copies row 2 again to row 2. Within a block thread i copies
        column i.
        """,
    )  # fmt: skip
    ids, table = [2, 0, 2], [[10, 11, 12], [20, 21, 22], [30, 31, 32], [40, 41, 42]]
    fills = [BLUE, GREY, GREEN, GREY]
    figure.text(90, 32, "ids [T = 3]", bold=True)
    figure.text(360, 32, "table [V = 4, H = 3]", bold=True)
    figure.text(650, 32, "out [T = 3, H = 3]", bold=True)
    for row, values in enumerate(table):
        figure.cells(270, 56 + row * 46, 60, 36, values, fills[row], mono=True)
        figure.text(256, 74 + row * 46, str(row), 13, mono=True, color=FAINT)
    for token, row in enumerate(ids):
        y = 72 + token * 46
        figure.box(60, y, 60, 36, str(row), fill=ORANGE, mono=True)
        figure.text(46, y + 18, str(token), 13, mono=True, color=FAINT)
        figure.cells(560, y, 60, 36, table[row], fills[row], mono=True)
        figure.arrow((124, y + 18), (240, 74 + row * 46), color=FAINT)
        figure.arrow((454, 74 + row * 46), (556, y + 18), color=FAINT)
    for token in range(3):
        figure.text(768, 90 + token * 46, str(token), 13, mono=True, color=FAINT)
    figure.text(
        400, 268, "Block t copies row ids[t] of the table to row t of out; thread i copies column i, i + block, …"
    )
    return figure


def coalescing() -> Figure:
    figure = Figure(
        "coalescing", 800, 430, "One request of a warp: neighbouring elements need 2 sectors, scattered ones 32",
        """
        A warp is 32 lanes. Top: lane i reads bf16 element i of a row, 64 bytes in a piece, which are 2 sectors
        of 32 bytes, used in full. Bottom: lane i reads element 16 i, so each lane touches a sector of its own:
        32 sectors, 1,024 bytes moved, of which 64 are used.
        """,
    )  # fmt: skip
    width, left = 22, 48
    figure.text(
        left, 26, "Thread i takes elements i, i + block, …: neighbours read neighbours", bold=True, anchor="start"
    )
    figure.text(
        left, 232, "Thread i takes elements 16 i to 16 i + 15: neighbours read far apart", bold=True, anchor="start"
    )
    for top, neighbours in ((44, True), (250, False)):
        for lane in range(32):
            x = left + lane * width
            figure.box(x, top, width, 26, str(lane), fill=BLUE, size=11, mono=True)
            figure.arrow((x + width / 2, top + 28), (x + width / 2, top + 60), color=FAINT, thick=1)
            if neighbours:
                figure.box(x, top + 60, width, 30, fill=GREEN)
            else:
                figure.box(x, top + 60, width, 30, fill=GREY)
                figure.box(x + width / 2 - 2, top + 60, 4, 30, fill=GREEN, thick=0.5)
    for half in (0, 1):
        figure.box(left + half * 16 * width, 104, 16 * width, 30, thick=2.5, fill="none")
        figure.bracket(
            left + half * 16 * width + 3, left + (half + 1) * 16 * width - 3, 138, "a sector: 32 bytes, all used"
        )
    figure.text(400, 184, "32 lanes · 2 bytes = 64 bytes asked for, 2 sectors = 64 bytes moved", 14)
    figure.text(400, 362, "each grey box is a sector of 32 bytes, of which this request uses 2 bytes (green)", 13)
    figure.text(
        400, 388, "32 lanes · 2 bytes = 64 bytes asked for, 32 sectors = 1,024 bytes moved: 16 times as many", 14
    )
    figure.text(400, 412, "lanes above, memory below", 13, color=FAINT)
    return figure
