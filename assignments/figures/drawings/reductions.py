"""Stages 3 and 5: sums of a block by tree and by shuffles, and the three sweeps of a softmax."""

import math

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, Figure

VALUES = [3, 1, 7, 0, 4, 1, 6, 3]


def reduction_tree() -> Figure:
    figure = Figure(
        "reduction-tree", 800, 400, "A tree in shared memory adds eight partial sums in three levels",
        """
        Shared memory holds 3 1 7 0 4 1 6 3, one partial sum per thread. Level 1, distance 4: threads 0 to 3 add
        the slot 4 places on: 7 2 13 3. Level 2, distance 2: threads 0 and 1 add: 20 5. Level 3, distance 1:
        thread 0 adds: 25. A barrier stands before each level and after the last.
        """,
    )  # fmt: skip
    width, left, step = 70, 190, 88
    values, half = list(VALUES), 8
    for level in range(4):
        y = 48 + level * step
        fills = [BLUE if slot < half else GREY for slot in range(8)]
        if level == 3:
            fills[0] = GREEN
        figure.cells(left, y, width, 34, values, fills, mono=True)
        label = "partial[0 … 7]" if level == 0 else f"distance {half}"
        figure.text(20, y + 17, label, anchor="start", color=FAINT)
        if level < 3:
            half //= 2
            figure.line((left, y + 47), (left + 8 * width, y + 47), color="#b3261e", dashed=True)
            if level == 0:
                figure.text(20, y + 47, "barrier", 13, anchor="start", color="#b3261e")
            for slot in range(half):
                x, partner = left + (slot + 0.5) * width, left + (slot + half + 0.5) * width
                figure.arrow((x, y + 36), (x, y + step - 2))
                figure.arrow((partner, y + 36), (x + 10, y + step - 2), color=FAINT)
                values[slot] += values[slot + half]
    for slot in range(8):
        figure.text(left + (slot + 0.5) * width, 30, f"thread {slot}", 12, color=FAINT)
    figure.text(
        400, 374, "Grey slots are out of use from that level on; a last barrier lets every thread read partial[0] = 25."
    )
    return figure


def warp_shuffle() -> Figure:
    figure = Figure(
        "warp-shuffle", 800, 400, "Shuffles add within a warp, through registers, without a barrier",
        """
        Eight lanes hold 3 1 7 0 4 1 6 3, each in a register. With distance 4 every lane adds the value of the
        lane whose number differs in the bit 4: 7 2 13 3 7 2 13 3. With distance 2: 20 5 20 5 and so on. With
        distance 1: all lanes hold 25.
        """,
    )  # fmt: skip
    width, left, step = 70, 190, 88
    values = list(VALUES)
    for level, distance in enumerate((4, 2, 1, 0)):
        y = 48 + level * step
        figure.cells(left, y, width, 34, values, BLUE if level < 3 else GREEN, mono=True)
        label = "a register each" if level == 0 else f"after xor {2 * distance or 1}"
        figure.text(20, y + 17, label, anchor="start", color=FAINT)
        if distance:
            for lane in range(8):
                x, partner = left + (lane + 0.5) * width, left + ((lane ^ distance) + 0.5) * width
                figure.arrow((partner, y + 36), (x, y + step - 2), color=FAINT, thick=1)
            values = [values[lane] + values[lane ^ distance] for lane in range(8)]
    for lane in range(8):
        figure.text(left + (lane + 0.5) * width, 30, f"lane {lane}", 12, color=FAINT)
    figure.text(
        400, 374, "A real warp has 32 lanes and takes five steps: 16, 8, 4, 2, 1. Every lane ends with the whole sum."
    )
    return figure


def softmax_sweeps() -> Figure:
    row = [2.0, -1.0, 0.0, 3.0, 1.0, -math.inf]
    maximum = max(row)
    exponentials = [math.exp(value - maximum) for value in row]
    total = sum(exponentials)
    figure = Figure(
        "softmax-sweeps", 800, 380, "Softmax in three sweeps over a row of six by a block of four threads",
        """
        The row is 2, -1, 0, 3, 1, -infinity. Thread 0 takes columns 0 and 4, thread 1 columns 1 and 5, thread 2
        column 2, thread 3 column 3. Sweep 1 finds the maximum, 3. Sweep 2 adds the exponentials of x minus 3:
        0.3679, 0.0183, 0.0498, 1, 0.1353 and 0, in all 1.5713. Sweep 3 writes the quotients 0.2341, 0.0117,
        0.0317, 0.6364, 0.0861, 0.
        """,
    )  # fmt: skip
    width, left = 96, 204
    fills = [BLUE, GREEN, ORANGE, GREY, BLUE, GREEN]
    rows = (
        (48, "x", ["2", "−1", "0", "3", "1", "−inf"]),
        (156, "exp(x − 3)", [f"{value:.4f}" for value in exponentials]),
        (264, "out", [f"{value / total:.4f}" for value in exponentials]),
    )
    for column in range(6):
        figure.text(left + (column + 0.5) * width, 30, f"thread {column % 4}", 13, color=FAINT)
    for y, label, values in rows:
        figure.text(20, y + 19, label, 15, anchor="start", mono=True)
        figure.cells(left, y, width, 38, values, fills, mono=True)
    middle = left + 3 * width
    figure.text(middle, 108, f"sweep 1: maximum over the block = {maximum:g}", bold=True)
    figure.text(middle, 132, "sweep 2: subtract it, then take exponentials", 14, color=FAINT)
    figure.text(middle, 216, f"sum over the block = {total:.4f}", bold=True)
    figure.text(middle, 240, "sweep 3: divide by the sum", 14, color=FAINT)
    figure.text(400, 332, "Colours: which thread. With a block of 4, thread i takes columns i, i + 4, …")
    figure.text(400, 356, "The outputs add up to 1; the masked column (−infinity) gives exactly 0.", color=FAINT)
    return figure
