"""Stage 13: a trace under static and continuous batching, the life of a request, and the tokens of a step."""

from collections.abc import Sequence

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, RED, VIOLET, WHITE, Figure

NAMES = "ABCDEFGHI"
ANSWERS = (2, 9, 1, 3, 2, 8, 2, 7, 2)
SLOTS = 3
COLOURS = (BLUE, ORANGE, GREEN, VIOLET, PINK)


def scheduler_timeline() -> Figure:
    figure = Figure(
        "scheduler-timeline", 800, 420, "Nine requests in three slots, in static and in continuous batches",
        """
        Requests A to I get 2, 9, 1, 3, 2, 8, 2, 7 and 2 tokens, 36 in all; there are 3 slots. Static: A, B, C run until
        B ends after 9 steps, then D, E, F for 8 steps, then G, H, I for 7: 24 steps, of whose 72 cells 36 are idle.
        Continuous: D takes C's slot in step 2, E takes A's in step 3, F takes E's in step 5, G takes D's in step 5, H
        takes G's in step 7, I takes B's in step 10. It is over after 13 steps, with 3 idle cells of 39.
        """,
    )  # fmt: skip
    static, continuous = _static(), _continuous()
    _timeline(figure, 44, "static: the next group begins when the longest has ended", static)
    _timeline(figure, 224, "continuous: a free slot is taken in the next step", continuous)
    figure.box(20, 386, 16, 16, fill=WHITE, thick=2.4)
    figure.text(44, 394, "first token: the prompt's prefill", 13, anchor="start")
    figure.box(286, 386, 16, 16, fill=WHITE, dashed=True, stroke=RED)
    figure.text(310, 394, "idle", 13, anchor="start")
    figure.text(380, 394, f"both give the same {sum(ANSWERS)} tokens", 13, anchor="start", color=FAINT)
    return figure


def _static() -> list[str]:
    """Which request each slot serves in each step, a letter or a blank; all of a group begin together."""
    rows = [""] * SLOTS
    for first in range(0, len(ANSWERS), SLOTS):
        group = range(first, first + SLOTS)
        longest = max(ANSWERS[number] for number in group)
        for slot, number in enumerate(group):
            rows[slot] += (NAMES[number] * ANSWERS[number]).ljust(longest)
    return rows


def _continuous() -> list[str]:
    """The same, when a slot is taken in the step after it was left, in order of arrival."""
    rows, left, running, waiting = [""] * SLOTS, list(ANSWERS), [-1] * SLOTS, list(range(len(ANSWERS)))
    while waiting or any(number >= 0 for number in running):
        for slot in range(SLOTS):
            if running[slot] < 0 and waiting:
                running[slot] = waiting.pop(0)
            number = running[slot]
            rows[slot] += NAMES[number] if number >= 0 else " "
            if number >= 0:
                left[number] -= 1
                running[slot] = number if left[number] else -1
    return rows


def _timeline(figure: Figure, top: float, heading: str, rows: Sequence[str]) -> None:
    left, width, height = 72, 28, 30
    steps, seen = len(rows[0]), set[str]()
    figure.text(20, top - 20, heading, bold=True, anchor="start")
    for step in range(steps):
        figure.text(left + (step + 0.5) * width, top + 6, str(step + 1), 11, mono=True, color=FAINT)
        for slot, row in enumerate(rows):
            name, y = row[step], top + 18 + slot * (height + 4)
            if name == " ":
                figure.box(left + step * width + 1, y, width - 2, height, dashed=True, stroke=RED)
                continue
            figure.box(
                left + step * width + 1, y, width - 2, height, name, fill=COLOURS[NAMES.index(name) % 5],
                size=13, mono=True, thick=1 if name in seen else 2.4,
            )  # fmt: skip
        seen |= {row[step] for row in rows}
    for slot in range(len(rows)):
        figure.text(60, top + 18 + slot * (height + 4) + height / 2, f"slot {slot}", 12, anchor="end", color=FAINT)
    idle = sum(row.count(" ") for row in rows)
    figure.text(
        left, top + 136, f"{steps} steps, {idle} of {steps * len(rows)} cells idle, "
        f"{sum(ANSWERS) / steps:.2f} tokens a step", 13, anchor="start",
    )  # fmt: skip


def request_life() -> Figure:
    figure = Figure(
        "request-life", 800, 400, "The life of a request: refused, waiting, running, preempted, finished",
        """
        add_request checks the request: what is malformed or can never fit is refused with an error and leaves nothing
        behind. Else it waits, at the end of a queue. When a step has a slot, room in the cache and budget for its
        prompt, it is admitted: prefill gives its first token in that step, and it is running. Each further step decodes
        one token. It finishes with stop after an end-of-sequence token or with length after max_tokens or at the end
        of the context, and its slot and cache are free in the next step. abort ends it in either state. From stage 16
        on, a running request may be preempted: it loses its cache, keeps its tokens, and waits in front of the queue.
        """,
    )  # fmt: skip
    figure.box(30, 150, 132, 56, "add_request", fill=GREY, mono=True, size=13, radius=6)
    figure.box(246, 150, 132, 56, "waiting", fill=ORANGE, bold=True, radius=6)
    figure.box(484, 150, 118, 56, "running", fill=GREEN, bold=True, radius=6)
    figure.box(676, 150, 104, 56, "finished", fill=BLUE, bold=True, radius=6)
    figure.box(30, 290, 132, 56, "refused", fill=PINK, bold=True, radius=6)
    figure.arrow((162, 178), (246, 178))
    figure.text(204, 164, "queued last", 12)
    figure.arrow((96, 206), (96, 290))
    figure.text(106, 248, "malformed, or too long\never to fit: an error", 12, anchor="start", color=RED)
    figure.arrow((378, 178), (484, 178))
    figure.text(431, 128, "admitted:\nprefill gives\nthe first token", 12)
    figure.arrow((510, 150), (510, 100), (562, 100), (562, 150))
    figure.text(536, 70, "every step: one decode,\none token", 12)
    figure.arrow((602, 178), (676, 178))
    figure.text(641, 128, "“stop” or\n“length”", 12)
    figure.text(728, 232, "slot and cache\nfree for the\nnext step", 12, color=FAINT)
    figure.arrow((536, 206), (536, 262), (340, 262), (340, 206), dashed=True)
    figure.text(438, 248, "preempted (stage 16)", 12)
    figure.text(438, 280, "loses its cache, keeps its tokens,\nwaits in front of all others", 12, color=FAINT)
    figure.arrow((290, 206), (290, 340), (470, 340))
    figure.arrow((580, 206), (580, 316))
    figure.box(470, 316, 132, 48, "aborted", fill=PINK, bold=True, radius=6)
    figure.text(380, 326, "abort", 12, mono=True)
    figure.text(590, 292, "abort", 12, mono=True, anchor="start")
    figure.text(
        400,
        382,
        "In every state it is in exactly one list; a slot belongs to one running request at most.",
        13,
        color=FAINT,
    )
    return figure


def token_budget() -> Figure:
    budget, unit = 32, 9
    figure = Figure(
        "token-budget", 800, 330, "The tokens of three steps under a budget of 32",
        """
        max_num_batched_tokens is 32. Three requests run; four wait with prompts of 12, 15, 60 and 5 tokens, and there
        are slots enough. Step 1: 3 decodes, then the prompts of 12 and 15: 30 tokens; the prompt of 60 does not fit.
        Step 2: 5 decodes and the prompt of 60, alone: 65 tokens, since one prompt is always allowed. Step 3: 6 decodes
        and the prompt of 5: 11 tokens. Step 4: 7 decodes.
        """,
    )  # fmt: skip
    left, top, height, step_height = 106, 62, 34, 52
    steps: tuple[tuple[int, tuple[int, ...]], ...] = ((3, (12, 15)), (5, (60,)), (6, (5,)), (7, ()))
    x = left + budget * unit
    figure.line((x, 44), (x, top + 4 * step_height), color=RED, dashed=True)
    figure.text(x, 28, f"max_num_batched_tokens = {budget}", 13, color=RED, mono=True)
    for number, (decodes, prompts) in enumerate(steps):
        y = top + number * step_height
        figure.text(20, y + height / 2, f"step {number + 1}", 13, anchor="start")
        figure.box(left, y, decodes * unit, height, str(decodes), fill=GREEN, mono=True, size=13)
        at = left + decodes * unit
        for prompt in prompts:
            figure.box(at, y, prompt * unit, height, str(prompt), fill=ORANGE, mono=True, size=13)
            at += prompt * unit
        total = decodes + sum(prompts)
        figure.text(max(at, x) + 8, y + height / 2, f"{total}", 13, anchor="start", mono=True, bold=True)
    figure.box(106, 286, 16, 16, fill=GREEN)
    figure.text(130, 294, "decodes, 1 token each", 13, anchor="start")
    figure.box(310, 286, 16, 16, fill=ORANGE)
    figure.text(334, 294, "prompts, prefilled whole in the step of their admission", 13, anchor="start")
    return figure
