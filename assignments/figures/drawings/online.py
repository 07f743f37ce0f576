"""Stage 11: softmax in one pass over tiles, the tiles that a causal mask leaves, and the memory of a score row."""

import math

from .canvas import BLUE, FAINT, GREEN, GREY, INK, ORANGE, PINK, RED, WHITE, Figure

SCORES = ((1, 3), (2, 0), (5, 4))
VALUES = ((10, 20), (30, 40), (50, 60))


def online_softmax() -> Figure:
    figure = Figure(
        "online-softmax", 800, 490, "The running maximum, sum and output over three tiles of two keys",
        """
        Scores 1 3, then 2 0, then 5 4; values 10 20, 30 40, 50 60. Before the first tile m is minus infinity, l and o
        are 0. Tile 0: m = 3, exponentials 0.1353 and 1, l = 1.1353, o = 21.3534. Tile 1 has no larger score: m stays
        3, the factor is 1, exponentials 0.3679 and 0.0498, l = 1.5530, o = 34.3812. Tile 2 brings a larger one: m = 5,
        and what was summed before shrinks by exp(3 - 5) = 0.1353; exponentials 1 and 0.3679, l = 1.5781, o = 76.7258.
        The output is o / l = 48.6204.
        """,
    )  # fmt: skip
    left, width, step, top = 196, 198, 42, 62
    labels = (
        "scores", "values", "m new = max(m, scores)", "factor = exp(m − m new)", "p = exp(score − m new)",
        "l = l · factor + Σ p", "o = o · factor + Σ p · v",
    )  # fmt: skip
    for row, label in enumerate(labels):
        figure.text(14, top + row * step + 17, label, 13, anchor="start", color=FAINT)
    m, total, output = -math.inf, 0.0, 0.0
    for tile, (scores, values) in enumerate(zip(SCORES, VALUES, strict=True)):
        x = left + tile * width
        new = max(m, *scores)
        factor = math.exp(m - new)
        p = [math.exp(score - new) for score in scores]
        added = sum(p), sum(a * b for a, b in zip(p, values, strict=True))
        sums = (
            f"l = {total:.4f} · {factor:.4f} + {added[0]:.4f} = {total * factor + added[0]:.4f}\n"
            f"o = {output:.4f} · {factor:.4f} + {added[1]:.4f} = {output * factor + added[1]:.4f}"
        )
        total, output = total * factor + added[0], output * factor + added[1]
        figure.text(x + 90, 40, f"tile {tile}", bold=True)
        rescaled = 0 < factor < 1
        figure.cells(x, top, 90, 34, scores, BLUE, mono=True)
        figure.cells(x, top + step, 90, 34, values, BLUE, mono=True)
        figure.box(x, top + 2 * step, 180, 34, f"{new}", mono=True, fill=ORANGE if new > m else GREY)
        figure.box(x, top + 3 * step, 180, 34, f"{factor:.4g}", mono=True, fill=PINK if rescaled else GREY)
        figure.cells(x, top + 4 * step, 90, 34, [f"{value:.4f}" for value in p], WHITE, mono=True)
        figure.box(x, top + 5 * step, 180, 34, f"{total:.4f}", mono=True, fill=GREEN, bold=True)
        figure.box(x, top + 6 * step, 180, 34, f"{output:.4f}", mono=True, fill=GREEN, bold=True)
        if tile:
            for row in (2, 5, 6):
                figure.arrow((x - 18, top + row * step + 17), (x, top + row * step + 17))
        if rescaled:
            figure.text(184, top + 7 * step + 22, f"tile {tile} has a larger maximum:", 13, color=RED)
            figure.text(300, top + 7 * step + 22, sums, 13, mono=True, anchor="start", color=RED)
        m = new
    figure.text(400, 424, f"output = o / l = {output:.4f} / {total:.4f} = {output / total:.4f}", bold=True)
    figure.text(
        400, 456, "Orange: a larger maximum. Pink: the factor that brings what was summed so far to the new scale.",
        color=FAINT,
    )  # fmt: skip
    return figure


def attention_tiles() -> Figure:
    queries, keys, tile = 10, 15, 4
    offset = keys - queries
    figure = Figure(
        "attention-tiles", 800, 450, "Ten queries over fifteen keys in tiles of four by four",
        """
        L = 10 queries, S = 15 keys, tiles of 4 queries and 4 keys; query i sees the keys 0 to 5 + i. Block 0 has the
        queries 0 to 3 and visits the key tiles 0, 1 and 2; of tile 2, query 3 alone sees a key, key 8. Tile 3 is never
        brought. Block 1 has the queries 4 to 7 and visits tiles 0 to 3; block 2 has two queries, 8 and 9, and visits
        all four; the last tile has 3 keys. Tiles that all queries of a block see whole need no mask.
        """,
    )  # fmt: skip
    cell, left, top = 26, 96, 78
    figure.text(left + keys * cell / 2, 26, "key j", 13, color=FAINT)
    for key in range(keys):
        figure.text(left + (key + 0.5) * cell, 64, str(key), 12, mono=True, color=FAINT)
    for number in range(4):
        start = number * tile
        end = min(start + tile, keys)
        figure.text(left + (start + end) / 2 * cell, 44, f"tile {number}", 12, bold=True)
    for query in range(queries):
        y = top + query * cell
        figure.text(left - 8, y + cell / 2, f"{query}", 12, mono=True, color=FAINT, anchor="end")
        last = min(query // tile * tile + tile, queries) - 1  # the block's last query
        for key in range(keys):
            visited = key // tile * tile <= offset + last
            fill = GREEN if key <= offset + query else PINK if visited else WHITE
            figure.box(
                left + key * cell, y, cell, cell, "•" if key <= offset + query else "", fill=fill, stroke="#b9c0c7"
            )
    for number in range(3):
        y, rows = top + number * tile * cell, min(tile, queries - number * tile)
        figure.text(left - 32, y + rows * cell / 2, f"block\n{number}", 12, bold=True, anchor="end")
        for column in range(4):
            size = min(tile, keys - column * tile)
            x = left + column * tile * cell
            figure.line((x, y), (x + size * cell, y), (x + size * cell, y + rows * cell), (x, y + rows * cell), (x, y),
                        thick=2.2)  # fmt: skip
    notes = (
        (96, GREEN, "seen: j ≤ S − L + i = 5 + i"),
        (142, PINK, "in a tile that is visited, but\nmasked: score −∞, p = 0"),
        (190, WHITE, "in a tile that no query of\nthe block sees: not loaded"),
    )
    for y, fill, text in notes:
        figure.box(526, y, cell, cell, fill=fill, stroke="#b9c0c7")
        figure.text(564, y + 13, text, 13, anchor="start")
    figure.text(
        526, 292,
        "block 0 walks tiles 0, 1, 2\nblock 1 walks tiles 0, 1, 2, 3\nblock 2 walks tiles 0, 1, 2, 3", 13,
        anchor="start", mono=True,
    )  # fmt: skip
    figure.text(
        400, 376, "Queries 0, 1 and 2 see nothing of tile 2, but their block walks it, for query 3: they take part in",
        13,
    )  # fmt: skip
    figure.text(400, 397, "every barrier, and a whole tile of −∞ must leave their m, l and o as they are.", 13)
    figure.text(
        400, 427, "The last block has 2 of 4 queries and the last tile 3 of 4 keys: both have a tail.", 13, color=FAINT
    )
    return figure


def score_row_memory() -> Figure:
    figure = Figure(
        "score-row-memory", 800, 370, "Shared memory of a block against the number of keys",
        """
        A score row takes 4 bytes per key: 16 KB at 4,096 keys, 48 KB at 12,288, 64 KB at 16,384 and 99 KB at 25,344.
        The line of 48 KB, what a block gets without asking, is crossed at 12,288 keys, that of 99 KB, the most there
        is on the course's device, at 25,344. A kernel that holds one tile at a time needs the same at every length:
        22 KB in the example of 16 queries, 32 keys and 32 values with D = 64 as float32, and their scores.
        """,
    )  # fmt: skip
    left, bottom, per_key, per_kb = 110, 280, 0.0185, 2.0

    def at(keys: float, kilobytes: float) -> tuple[float, float]:
        return left + keys * per_key, bottom - kilobytes * per_kb

    for kilobytes, text in ((48, "48 KB: without asking"), (99, "99 KB: the most there is")):
        figure.line(at(0, kilobytes), at(32_768, kilobytes), color=FAINT, dashed=True)
        figure.text(left + 10, at(0, kilobytes)[1] - 10, text, 12, anchor="start", color=FAINT)
        figure.text(left - 10, at(0, kilobytes)[1], f"{kilobytes}", 12, mono=True, anchor="end")
    figure.line(at(0, 0), at(0, 118))
    figure.line(at(0, 0), at(33_500, 0))
    figure.text(16, 36, "KB of shared memory per block", 12, anchor="start", color=FAINT)
    for keys in (4096, 8192, 12_288, 16_384, 25_344, 32_768):
        x, y = at(keys, 0)
        figure.line((x, y), (x, y + 5))
        figure.text(x, y + 17, f"{keys:,}", 12, mono=True)
    figure.text(at(16_384, 0)[0], bottom + 40, "keys S", 13, color=FAINT)
    figure.line(at(0, 0), at(25_344, 99), thick=2.5, color=RED)
    figure.line(at(25_344, 99), at(29_184, 114), thick=2.5, color=RED, dashed=True)
    figure.text(at(20_000, 0)[0] + 4, at(0, 64)[1], "4 · S: the whole score row", 13, anchor="start", color=RED)
    figure.line(at(0, 22), at(32_768, 22), thick=2.5, color="#2f6f3e")
    figure.text(
        at(20_000, 0)[0], at(0, 22)[1] - 13, "one tile at a time: always the same", 13, anchor="start", color="#2f6f3e"
    )
    for keys in (12_288, 25_344):
        x, y = at(keys, keys * 4 / 1024)
        figure.box(x - 4, y - 4, 8, 8, fill=INK, radius=4)
    figure.text(400, 350, "At S = 16,384 a row of scores is 65,536 bytes, a third more than 48 KB.", 13, color=FAINT)
    return figure
