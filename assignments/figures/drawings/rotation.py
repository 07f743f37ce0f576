"""Stage 4: which elements of a head form a pair, and what Llama 3's scaling does to each pair's frequency."""

import math

from .canvas import BLUE, FAINT, GREEN, ORANGE, RED, VIOLET, Figure


def rope_pairs() -> Figure:
    figure = Figure(
        "rope-pairs", 800, 380, "Half-split pairs of a head of eight elements",
        """
        Top, right for this course's weights: element i is paired with element i + D/2, so for D = 8 the pairs
        are (0, 4), (1, 5), (2, 6), (3, 7). Bottom, wrong here: adjacent pairs (0, 1), (2, 3), (4, 5), (6, 7).
        """,
    )  # fmt: skip
    width, left, fills = 68, 128, [BLUE, GREEN, ORANGE, VIOLET]
    figure.text(20, 28, "Half-split, as the checkpoints expect: pair i is (i, i + D/2)", bold=True, anchor="start")
    figure.cells(left, 50, width, 40, range(8), fills * 2, mono=True, size=16)
    for pair in range(4):
        x, y = left + (pair + 0.5) * width, 104 + pair * 22
        partner = x + 4 * width
        figure.line((x, 92), (x, y), (partner, y), (partner, 92), thick=1.6)
        figure.text(x - 8, y, f"pair {pair}", 13, anchor="end")
    figure.text(
        20,
        236,
        "Adjacent, as some other models store them: wrong for these weights",
        bold=True,
        anchor="start",
        color=RED,
    )
    figure.cells(left, 258, width, 40, range(8), [fills[i // 2] for i in range(8)], mono=True, size=16)
    for pair in range(4):
        x = left + (2 * pair + 0.5) * width
        figure.line((x, 300), (x, 312), (x + width, 312), (x + width, 300), thick=1.6)
        figure.text(x + width / 2, 324, f"pair {pair}", 13)
    figure.text(
        400, 356, "One head of D = 8 elements at position p. Colours: elements that rotate together.", color=FAINT
    )
    return figure


def rope_scaling() -> Figure:
    theta, head_dim, factor, low, high, original = 500000.0, 64, 32.0, 1.0, 4.0, 8192
    figure = Figure(
        "rope-scaling", 800, 400, "How Llama 3.2's scaling changes the frequency of each pair",
        """
        Bars over the 32 pairs of a head of 64: the scaled frequency divided by the unscaled one. Pairs 0 to 14,
        whose wavelength is below 2,048 positions, keep their frequency. Pairs 15, 16 and 17 are blended to
        0.606, 0.304 and 0.103 of it. Pairs 18 to 31, whose wavelength is above 8,192 positions, are divided by
        32.
        """,
    )  # fmt: skip
    left, width, floor, height = 90, 21, 320, 230
    figure.text(20, 26, "scaled frequency / unscaled frequency (each line halves)", 14, anchor="start", bold=True)
    for step in range(6):
        y = floor - height + step * 40
        figure.line((left, y), (left + 32 * width, y), color="#d0d7de")
        figure.text(left - 10, y, "1" if step == 0 else f"1/{2**step}", 13, anchor="end", mono=True)
    for pair in range(32):
        frequency = theta ** (-2 * pair / head_dim)
        turns = original * frequency / (2 * math.pi)
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        ratio = kept + (1 - kept) / factor
        top = floor - height - 40 * math.log2(ratio)
        fill = BLUE if kept == 1 else GREEN if kept == 0 else ORANGE
        figure.box(left + pair * width + 2, top, width - 4, floor - top, fill=fill)
        if pair % 2 == 0 or 14 < pair < 18:
            figure.text(left + (pair + 0.5) * width, floor + 14, str(pair), 11, mono=True)
    for pair, label in ((15, "wavelength\n2,048"), (18, "wavelength\n8,192")):
        x = left + pair * width
        figure.line((x, 62), (x, floor), color=RED, dashed=True)
        figure.text(x - 6 if pair == 15 else x + 6, 58, label, 12, color=RED, anchor="end" if pair == 15 else "start")
    figure.text(left + 7.5 * width, 196, "kept", 15, bold=True)
    figure.text(left + 16.5 * width, 104, "blend", 14, bold=True)
    figure.text(left + 25 * width, 270, "divided by 32", 15, bold=True)
    figure.text(400, floor + 38, "pair i of 32 (head of 64, base 500,000)", 13, color=FAINT)
    figure.text(400, 384, "factor 32, low_freq_factor 1, high_freq_factor 4, original length 8,192", 13, color=FAINT)
    return figure
