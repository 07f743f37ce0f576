"""Stage 6: the same memory read by rows and by columns, and a product computed tile by tile."""

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, VIOLET, WHITE, Figure


def column_major() -> Figure:
    figure = Figure(
        "column-major", 800, 330, "Six numbers in memory: 2 × 3 by rows, 3 × 2 by columns",
        """
        Memory holds 1 2 3 4 5 6. Read by rows with row length 3 it is the 2 × 3 matrix with rows 1 2 3 and 4 5
        6. Read by columns with column length 3, the leading dimension, it is the 3 × 2 matrix with columns 1 2
        3 and 4 5 6: the transpose.
        """,
    )  # fmt: skip
    figure.text(400, 26, "memory: six numbers in a row", bold=True)
    figure.cells(220, 44, 60, 40, range(1, 7), [BLUE] * 3 + [ORANGE] * 3, mono=True, size=16)
    figure.arrow((310, 92), (200, 136), color=FAINT)
    figure.arrow((490, 92), (600, 136), color=FAINT)
    figure.text(190, 152, "C and NumPy: by rows", bold=True)
    figure.cells(100, 172, 60, 40, (1, 2, 3), BLUE, mono=True, size=16)
    figure.cells(100, 212, 60, 40, (4, 5, 6), ORANGE, mono=True, size=16)
    figure.text(190, 278, "x, a 2 × 3 matrix", mono=True)
    figure.text(610, 152, "cuBLAS: by columns, ld = 3", bold=True)
    for row in range(3):
        figure.cells(550, 172 + row * 40, 60, 40, (row + 1, row + 4), [BLUE, ORANGE], mono=True, size=16)
    figure.text(610, 308, "its transpose, 3 × 2", mono=True)
    figure.text(390, 212, "no byte moves:\nonly the reading\nis another", 13, color=FAINT)
    return figure


def matmul_tiles() -> Figure:
    figure = Figure(
        "matmul-tiles", 800, 470, "One block's tile of out, and the tiles of x and w that it loads in one step",
        """
        out is M × N = 64 × 64, cut into tiles of 16 × 16; one block computes one tile. For it the block walks
        along K = 128 and at each step loads a 16-wide tile of its 16 rows of x and one of its 16 rows of w into
        shared memory. Bytes loaded for the whole product: naive 4 M N K = 2,097,152; with tiles of 16 4 M N
        K / 16 = 131,072; the limit of the check is M N K / 2 = 262,144.
        """,
    )  # fmt: skip
    unit, step = 9, 3
    x_left, x_top = 30, 232
    out_left, out_top = 360, 232
    figure.text(x_left, x_top - 18, "x [M = 64, K = 128]", anchor="start", bold=True)
    figure.text(out_left, 32, "w [N = 64, K = 128], drawn as its transpose", anchor="start", bold=True)
    for tile in range(8):
        for band in range(4):
            x_fill = ORANGE if band == 1 and tile == step else BLUE if band == 1 else WHITE
            figure.box(x_left + tile * 4 * unit, x_top + band * 4 * unit, 4 * unit, 4 * unit, fill=x_fill, stroke=FAINT)
            w_fill = ORANGE if band == 2 and tile == step else VIOLET if band == 2 else WHITE
            figure.box(
                out_left + band * 4 * unit, 50 + tile * 2.25 * unit, 4 * unit, 2.25 * unit, fill=w_fill, stroke=FAINT
            )
    for row in range(4):
        for column in range(4):
            fill = GREEN if (row, column) == (1, 2) else WHITE
            figure.box(
                out_left + column * 4 * unit, out_top + row * 4 * unit, 4 * unit, 4 * unit, fill=fill, stroke=FAINT
            )
    figure.text(out_left + 72, out_top + 162, "out [M = 64, N = 64]", bold=True)
    figure.text(x_left + 144, x_top + 162, "the walk along K: 8 steps of 16", 13, color=FAINT)
    figure.text(
        540, 150,
        "green: the block's 16 × 16 outputs,\n         a thread for each\n"
        "blue, violet: all that it needs\norange: what it holds in shared\n          memory in step 3",
        13, anchor="start",
    )  # fmt: skip
    figure.box(540, 232, 236, 150, fill=GREY, radius=6)
    figure.text(
        552, 307,
        "bytes loaded\n\nnaive  4·M·N·K    2,097,152\ntile 8   ÷ 8        262,144\n"
        "tile 16  ÷ 16       131,072\n\nbytes stored          8,192\nlimit of both       262,144",
        13, mono=True, anchor="start",
    )  # fmt: skip
    figure.text(
        400, 436,
        "Each value brought to shared memory serves 16 threads: a sixteenth of the traffic.", 14,
    )  # fmt: skip
    return figure
