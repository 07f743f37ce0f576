"""Stage 10: from logits to a token, when an answer ends, and text whose characters take several tokens."""

import math

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, RED, WHITE, Figure

LOGITS = (2, 1, 3, 0, 2, -1)
TEMPERATURE, TOP_K, TOP_P = 2, 4, 0.8


def normalised(weights: list[float]) -> list[float]:
    return [weight / sum(weights) for weight in weights]


def sampling_pipeline() -> Figure:
    figure = Figure(
        "sampling-pipeline", 800, 560, "Six logits become one token: temperature 2, top-k 4, top-p 0.8",
        """
        Logits 2, 1, 3, 0, 2, -1 of the ids 0 to 5. Divided by temperature 2 and normalised: 0.2063, 0.1252, 0.3402,
        0.0759, 0.2063, 0.0460. top_k = 4 keeps the ids 2, 0, 4, 1; normalised again: 0.3875, 0.2350, 0.2350, 0.1425.
        Most probable first these add up to 0.3875, 0.6225, 0.8575: three tokens are the fewest that reach 0.8, so id 1
        goes. Normalised: id 2 0.4519, ids 0 and 4 0.2741. A uniform number 0.6 falls between the running sums 0.2741
        and 0.7259: token 2.
        """,
    )  # fmt: skip
    scaled = normalised([math.exp(logit / TEMPERATURE) for logit in LOGITS])
    ranked = sorted(range(6), key=lambda token: (-scaled[token], token))
    by_k = normalised([scaled[token] if token in ranked[:TOP_K] else 0.0 for token in range(6)])
    mass, kept = 0.0, []
    for token in ranked[:TOP_K]:
        if mass < TOP_P:
            kept.append(token)
        mass += by_k[token]
    by_p = normalised([by_k[token] if token in kept else 0.0 for token in range(6)])
    left, width, height = 250, 86, 170
    for token in range(6):
        figure.text(left + (token + 0.5) * width, 24, f"id {token}", 13, bold=True)
    figure.text(14, 48, "logits", 13, anchor="start")
    figure.cells(left, 34, width, 28, [f"{logit}".replace("-", "−") for logit in LOGITS], GREY, mono=True)
    stages = (
        (190, "temperature 2", "exp(logit / 2),\nnormalised", scaled),
        (310, "top_k = 4", "the 4 most probable:\nids 2, 0, 4, 1", by_k),
        (430, "top_p = 0.8", "0.3875 + 0.2350 = 0.6225\n+ 0.2350 = 0.8575 ≥ 0.8:\nids 2, 0, 4", by_p),
    )
    for bottom, name, what, chances in stages:
        figure.text(14, bottom - 76, name, 14, anchor="start", bold=True)
        figure.text(14, bottom - 34, what, 12, anchor="start", color=FAINT)
        figure.line((left, bottom), (left + 6 * width, bottom))
        for token, chance in enumerate(chances):
            x = left + token * width
            if chance:
                bar = chance * height
                figure.box(x + 22, bottom - bar, width - 44, bar, fill=BLUE if chances is not by_p else GREEN)
                figure.text(x + width / 2, bottom - bar - 12, f"{chance:.4f}", 12, mono=True)
            else:
                figure.text(x + width / 2, bottom - 14, "0", 12, mono=True, color=RED)
    figure.text(14, 478, "draw", 14, anchor="start", bold=True)
    figure.text(14, 506, "u = 0.6", 13, anchor="start", mono=True, color=RED)
    start, total = float(left), 6 * width
    for token in sorted(kept):
        figure.box(start, 464, by_p[token] * total, 32, f"token {token}", fill=GREEN, size=13, mono=True)
        start += by_p[token] * total
        figure.text(start, 510, f"{(start - left) / total:.4f}", 12, mono=True)
    figure.text(left, 510, "0", 12, mono=True)
    figure.arrow((left + 0.6 * total, 450), (left + 0.6 * total, 464), color=RED)
    figure.text(400, 540, "The uniform number 0.6 lies between 0.2741 and 0.7259: the token is 2.", 13, color=FAINT)
    return figure


def generation_loop() -> Figure:
    figure = Figure(
        "generation-loop", 800, 400, "One prefill, then one decode per token, until something ends it",
        """
        A prompt of 3 tokens, 17 5 42. prefill gives logits, sample takes 8 from them; decode of 8 gives the logits from
        which 30 is taken; decode of 30 those of 99. 99 is one of the end-of-sequence ids: generate returns 8, 30, 99
        and stop. With max_tokens = 2 it ends after 30 with length, and with a cache of 4 positions after 8 with length.
        The last token is never decoded.
        """,
    )  # fmt: skip
    left, width, y = 70, 150, 54
    figure.box(left, y, width, 52, "prefill\n[17, 5, 42]", fill=BLUE, size=13, mono=True, radius=4)
    for number, token in enumerate((8, 30)):
        figure.box(left + (number + 1) * 220, y, width, 52, f"decode\n{token}", fill=BLUE, size=13, mono=True, radius=4)
    for number, token in enumerate((8, 30, 99)):
        x = left + number * 220 + width / 2
        figure.arrow((x, y + 52), (x, y + 82))
        figure.text(x + 8, y + 66, "logits", 12, anchor="start", color=FAINT)
        figure.box(x - 60, y + 84, 120, 34, "sample", fill=ORANGE, size=13, mono=True, radius=4)
        figure.arrow((x, y + 118), (x, y + 146))
        figure.box(x - 34, y + 148, 68, 38, str(token), fill=PINK if token == 99 else GREEN, mono=True, bold=True)
        if token != 99:
            figure.arrow((x + 36, y + 167), (x + 108, y + 167), (x + 108, y + 26), (x + 143, y + 26))
    figure.text(left + 2 * 220 + width / 2, y + 204, "an EOS id", 12, color=RED)
    results = (
        ("max_tokens 16, max_length 64", '([8, 30, 99], "stop")', "an end-of-sequence token came"),
        ("max_tokens 2,  max_length 64", '([8, 30], "length")', "max_tokens reached"),
        ("max_tokens 16, max_length 4", '([8], "length")', "3 + 1 tokens: the context is full"),
    )
    for number, (call, result, reason) in enumerate(results):
        row = 294 + number * 30
        figure.text(20, row, call, 13, anchor="start", mono=True)
        figure.text(282, row, result, 13, anchor="start", mono=True, bold=True)
        figure.text(500, row, reason, 13, anchor="start", color=FAINT)
    figure.text(400, 382, "The last token returned is never decoded: nothing follows from it.", 13, color=FAINT)
    return figure


def streaming_text() -> Figure:
    figure = Figure(
        "streaming-text", 800, 400, "Seven tokens, whose bytes become four characters",
        """
        tiny writes né € with the tokens 77, 127, 102, 220, 158, 224, 105. Their bytes are 6E; C3; A9; 20; E2; 82; AC.
        é is C3 A9, € is E2 82 AC. decode of all tokens so far ends in U+FFFD after 127, 158 and 224, since a character
        is not whole. push returns n, nothing, é, a space, nothing, nothing, €. finish returns nothing.
        """,
    )  # fmt: skip
    tokens = (77, 127, 102, 220, 158, 224, 105)
    characters = "né €"
    bytes_ = [value for character in characters for value in character.encode()]
    left, width = 178, 86
    whole = (True, False, True, True, False, False, True)
    spans = []
    for character in characters:
        spans += [character] * len(character.encode())
    fills = [{"n": BLUE, "é": ORANGE, " ": GREY, "€": GREEN}[character] for character in spans]
    for y, label in ((40, "token"), (92, "its byte"), (170, "decode(all so far)"), (242, "push returns")):
        figure.text(14, y + 19, label, 13, anchor="start", color=FAINT)
    figure.cells(left, 40, width, 38, tokens, fills, mono=True)
    figure.cells(left, 92, width, 38, [f"{value:02X}" for value in bytes_], fills, mono=True)
    start = 0
    for character in characters:
        size = len(character.encode())
        x1, x2 = left + start * width, left + (start + size) * width
        figure.bracket(x1 + 4, x2 - 4, 134, "space" if character == " " else character)
        start += size
    for number in range(7):
        x = left + number * width
        # Up to here: whole characters, and one replacement for a character that is not.
        text = bytes(bytes_[: number + 1]).decode(errors="replace").replace(" ", "␣")
        figure.box(x, 170, width, 38, text, fill=WHITE if whole[number] else PINK, size=15)
        piece = {" ": "␣"}.get(spans[number], spans[number]) if whole[number] else ""
        figure.box(x, 242, width, 38, f'"{piece}"', fill=GREEN if piece else GREY, size=15, bold=bool(piece))
    figure.text(
        400, 320, "␣ is a space, � is U+FFFD: bytes that are no character, or not yet a whole one.", 13, color=FAINT
    )
    figure.text(400, 346, "What ends in � is held back, since the next token may change it.", 13)
    figure.text(
        400, 372, "finish() gives what was held back, when nothing follows; here nothing is left.", 13, color=FAINT
    )
    return figure
