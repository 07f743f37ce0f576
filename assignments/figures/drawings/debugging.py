"""Debugging: accesses beyond an array, and what a race gives in two orders of threads."""

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, RED, Figure

N, BLOCK = 10, 4


def out_of_bounds() -> Figure:
    figure = Figure(
        "out-of-bounds", 800, 290, "Two threads use elements that belong to no array",
        """
        The array x has 10 elements of 4 bytes. Before and behind it lies memory that belongs to no array. The four
        threads of block 2 compute i = 8, 9, 10 and 11. Threads 0 and 1 read x[8] and x[9]. Threads 2 and 3 would
        read x[10] and x[11], which lie 0 and 4 bytes past the end of x.
        """,
    )  # fmt: skip
    left, width = 110, 50
    figure.text(14, 62, "block 2: threadIdx.x", anchor="start", color=FAINT)
    figure.text(14, 102, "i = 2 · 4 + threadIdx.x", anchor="start", color=FAINT)
    figure.text(14, 190, "x", anchor="start", color=FAINT)
    figure.box(left - 60, 172, 60, 36, "no array", fill=GREY, size=12)
    figure.cells(left, 172, width, 36, [f"x[{i}]" for i in range(N)], BLUE, size=13, mono=True)
    figure.box(left + N * width, 172, 180, 36, fill=GREY)
    figure.text(left + N * width + 145, 190, "no array", 12)
    for thread in range(BLOCK):
        i = 2 * BLOCK + thread
        x = left + i * width
        fill, color = (BLUE, FAINT) if i < N else (ORANGE, RED)
        figure.box(x, 46, width, 32, str(thread), fill=fill, mono=True)
        figure.box(x, 84, width, 36, str(i), fill=fill, mono=True, bold=True)
        figure.arrow((x + width / 2, 122), (x + width / 2, 170), color=color)
    figure.bracket(left, left + N * width, 214, "10 elements, 40 bytes")
    figure.text(400, 268, "OUT_OF_BOUNDS: x[10] lies just past the end of x, x[11] 4 bytes past it.", color=RED)
    return figure


def race_orders() -> Figure:
    figure = Figure(
        "race-orders", 860, 330, "What threads read in two orders, and with a barrier",
        """
        Three rows of steps from left to right. In order of numbers: thread 0 writes tile[0], then reads tile[63],
        which is not written yet; later thread 63 writes tile[63] and reads tile[0], which is right. Reversed: thread
        63 writes tile[63] and reads tile[0] too early; later thread 0 writes tile[0] and reads tile[63], which is
        right. With a barrier: all threads write, then the barrier opens, then all read what is right.
        """,
    )  # fmt: skip
    rows = [
        ("in order\n(--seed 0)", [(0, "write"), (0, "early"), (63, "write"), (63, "read")]),
        ("reversed\n(--seed 1)", [(63, "write"), (63, "early"), (0, "write"), (0, "read")]),
        ("with\n__syncthreads()", [(0, "write"), (63, "write"), (0, "read"), (63, "read")]),
    ]
    fills = {"write": BLUE, "early": PINK, "read": GREEN}
    width, left = 138, 150
    for row, (name, steps) in enumerate(rows):
        y = 48 + row * 84
        figure.text(14, y + 26, name, 13, anchor="start", bold=True)
        for position, (thread, what) in enumerate(steps):
            x = left + position * (width + 14) + (74 if position > 1 else 0)
            verb, element = ("writes", thread) if what == "write" else ("reads", 63 - thread)
            end = ":\ntoo early" if what == "early" else ":\nright" if what == "read" else ""
            figure.box(x, y, width, 52, fill=fills[what], radius=4)
            figure.text(
                x + width / 2, y + 26, f"thread {thread} {verb}\ntile[{element}]{end}".replace("]:\n", "]: "), 12
            )
        middle = left + 2 * (width + 14) + 30
        if row == 2:
            figure.box(middle - 33, y - 4, 66, 60, "barrier", fill=ORANGE, size=13, radius=4)
        else:
            figure.text(middle, y + 26, "…", 20)
    figure.arrow((left, 22), (left + 4 * width + 130, 22), color=FAINT)
    figure.text(14, 22, "time", 13, anchor="start", color=FAINT)
    figure.text(
        430, 306, "Without the barrier, which half of the threads is wrong depends on the order.", 14, color=RED
    )
    return figure
