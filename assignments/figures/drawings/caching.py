"""Stage 9: what a cache keeps, the work that it saves, and where a token's key and value go."""

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, RED, WHITE, Figure

PROMPT = ("The", "cat", "sat", "on")
ANSWER = ("the", "mat", ".")


def kv_cache_growth() -> Figure:
    figure = Figure(
        "kv-cache-growth", 800, 420, "One prefill and three decodes fill a slot of the cache",
        """
        The prompt The cat sat on has 4 tokens; the slot has room for 8. Prefill computes keys and values of
        the positions 0 to 3 and writes them; its last logits give the token the. The first decode computes key and
        value of the alone, writes them at position 4, and its one query reads positions 0 to 4: mat. The second decode
        writes mat at position 5 and reads 6 positions, the third writes the full stop at position 6 and reads 7.
        """,
    )  # fmt: skip
    left, width, top, step, room = 176, 60, 84, 66, 8
    texts = [*PROMPT, *ANSWER]
    figure.text(left + room * width / 2, 26, "one slot of key_cache (value_cache alike), in every layer", bold=True)
    for position in range(room):
        figure.text(left + (position + 0.5) * width, 58, str(position), 13, mono=True, color=FAINT)
    figure.text(left - 12, 58, "position", 13, anchor="end", color=FAINT)
    figure.text(716, 58, "next token", 13, bold=True)
    for number in range(4):
        y = top + number * step
        count = len(PROMPT) + number
        fresh = range(len(PROMPT)) if number == 0 else range(count - 1, count)
        name = f"prefill({len(PROMPT)} tokens)" if number == 0 else f"decode({texts[count - 1]!r})"
        figure.text(14, y + 10, name, 13, anchor="start", mono=True)
        lens = f"context {count}" if number else "positions 0 … 3"
        figure.text(14, y + 30, lens, 12, anchor="start", color=FAINT)
        for position in range(room):
            fill = ORANGE if position in fresh else BLUE if position < count else WHITE
            label = texts[position] if position < count else ""
            figure.box(
                left + position * width, y, width, 38, label, fill=fill, size=13, mono=True, dashed=position >= count
            )
        figure.arrow((left + room * width + 4, y + 19), (left + room * width + 28, y + 19))
        answer = ANSWER[number] if number < len(ANSWER) else "…"
        figure.text(694, y + 19, answer, 14, mono=True, bold=True, anchor="start")
    for x, fill, text in ((70, ORANGE, "computed and written in this call"), (340, BLUE, "kept: only read"),
                          (500, WHITE, "room, never read (it may be NaN)")):  # fmt: skip
        figure.box(x, 356, 18, 18, fill=fill, dashed=fill == WHITE)
        figure.text(x + 26, 365, text, 13, anchor="start")
    figure.text(
        400,
        400,
        "A decode computes one token: one row in every matrix product, one query in attention.",
        13,
        color=FAINT,
    )
    return figure


def recomputation() -> Figure:
    prompt, new = 4, 6
    figure = Figure(
        "recomputation", 800, 420, "Rows that are computed for six new tokens, without and with a cache",
        """
        A prompt of 4 tokens, 6 new tokens. Without a cache every new token costs a forward pass over all tokens so far:
        4, 5, 6, 7, 8 and 9 rows, 39 in all, of which 30 are computed again, giving what they gave before. With a cache
        the first pass computes 4 rows and each further one 1: 9 in all. For a prompt of 100 tokens and 100 new ones it
        is 14,950 against 199.
        """,
    )  # fmt: skip
    cell, top = 30, 96
    for left, cached, heading in ((92, False, "without a cache"), (478, True, "with a cache")):
        figure.text(left + 4.5 * cell, 28, heading, bold=True)
        figure.text(left + 4.5 * cell, 54, "position", 12, color=FAINT)
        for position in range(prompt + new - 1):
            figure.text(left + (position + 0.5) * cell, 78, str(position), 12, mono=True, color=FAINT)
        total = 0
        for step in range(new):
            y, count = top + step * cell, prompt + step
            fresh = count if step == 0 else 1
            figure.text(left - 8, y + cell / 2, f"token {step + 1}", 12, anchor="end", color=FAINT)
            for position in range(count):
                again = position < count - fresh
                fill = GREY if again and cached else PINK if again else ORANGE
                figure.box(left + position * cell, y, cell - 2, cell - 2, fill=fill, stroke="#b9c0c7")
            rows = fresh if cached else count
            total += rows
            figure.text(left + (prompt + new - 1) * cell + 6, y + cell / 2, str(rows), 13, mono=True, anchor="start")
        figure.text(
            left + 4.5 * cell, top + new * cell + 22, f"{total} rows computed", bold=True,
            color="#1f2328" if cached else RED,
        )  # fmt: skip
    for x, fill, text in ((96, ORANGE, "computed, needed"), (298, PINK, "computed again, in vain"),
                          (528, GREY, "keys and values read only")):  # fmt: skip
        figure.box(x, 330, 18, 18, fill=fill, stroke="#b9c0c7")
        figure.text(x + 26, 339, text, 13, anchor="start")
    figure.text(400, 374, "A row is the whole model for one token: all matrix products of all layers.", 13, color=FAINT)
    figure.text(400, 398, "100 tokens of prompt and 100 new ones: 14,950 rows against 199.", 13)
    return figure


def slot_mapping() -> Figure:
    slots, length = 3, 6
    figure = Figure(
        "slot-mapping", 800, 440, "Six tokens find their rows in a cache of three slots of six positions",
        """
        The cache has num_slots = 3 slots of length = 6 positions; counted through, position p of slot s is row
        s · 6 + p. Slot 0 holds 4 tokens, slot 1 none, slot 2 holds 1. A call brings 6 tokens: 1 further for slot 0, 3
        for slot 1, 2 for slot 2. Their slot_mapping is 4, 6, 7, 8, 13, 14. Nothing else of the cache changes.
        """,
    )  # fmt: skip
    held, counts, colours = (4, 0, 1), (1, 3, 2), (ORANGE, GREEN, PINK)
    mapping = [
        (slot, slot * length + held[slot] + token) for slot in range(slots) for token in range(counts[slot])
    ]  # fmt: skip
    left, width = 236, 84
    figure.text(14, 48, "k, v  [T = 6, Hkv, D]", 13, anchor="start", mono=True)
    figure.text(14, 92, "slot_mapping  [T = 6]", 13, anchor="start", mono=True)
    fills = [colours[slot] for slot, _ in mapping]
    figure.cells(left, 30, width, 36, [f"k[{token}]" for token in range(6)], fills, size=13, mono=True)
    figure.cells(left, 74, width, 36, [row for _, row in mapping], fills, mono=True)
    top, height = 180, 58
    for slot in range(slots):
        y = top + slot * height
        figure.text(14, y + 12, f"slot {slot}", 13, anchor="start", mono=True)
        figure.text(14, y + 30, f"length {held[slot]} + {counts[slot]}", 12, anchor="start", color=FAINT)
        for position in range(length):
            row = slot * length + position
            new = [token for token, (_, target) in enumerate(mapping) if target == row]
            kept = position < held[slot]
            fill = colours[slot] if new else BLUE if kept else WHITE
            label = f"{row} ← k[{new[0]}]" if new else str(row)
            figure.box(left + position * width, y, width, 42, label, fill=fill, size=12, mono=True,
                       dashed=not new and not kept)  # fmt: skip
    for position in range(length):
        figure.text(left + (position + 0.5) * width, top - 16, f"position {position}", 12, color=FAINT)
    figure.text(14, top - 40, "key_cache  [num_slots = 3, length = 6, Hkv, D]", 13, anchor="start", mono=True)
    figure.text(400, 376, "row = slot · length + position: slot 2, position 1 is row 2 · 6 + 1 = 13.", bold=True)
    figure.text(
        400, 404, "Blue: there before. Coloured: written by this call. Dashed: room. The number in a box is its row.",
        13, color=FAINT,
    )  # fmt: skip
    return figure
