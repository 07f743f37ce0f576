"""Stages 7 and 8: which key/value head a query head reads, which keys a query sees, and the flow through a block."""

from .canvas import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, RED, VIOLET, Figure


def gqa_heads() -> Figure:
    figure = Figure(
        "gqa-heads", 800, 300, "Six query heads share two key/value heads",
        """
        Hq = 6 query heads, Hkv = 2 key/value heads, so the group size is 3. Query heads 0, 1 and 2 read
        key/value head 0; query heads 3, 4 and 5 read head 1. That is h // 3. The remainder h % 2 gives 0 1 0 1
        0 1: wrong for the query heads 1 and 4, right for the others by accident.
        """,
    )  # fmt: skip
    left, width, gap = 150, 84, 14
    figure.text(20, 70, "query head h", anchor="start", color=FAINT)
    figure.text(20, 186, "K/V head", anchor="start", color=FAINT)
    for head in range(6):
        group, x = head // 3, left + head * (width + gap)
        fill = BLUE if group == 0 else ORANGE
        figure.box(x, 50, width, 40, f"h = {head}", fill=fill, mono=True)
        figure.arrow(
            (x + width / 2, 92), (left + (3 * group + 1) * (width + gap) + width / 2 + (head % 3 - 1) * 24, 164)
        )
    for group in range(2):
        x = left + 3 * group * (width + gap)
        figure.box(
            x + 40, 166, 3 * width + 2 * gap - 80, 40, f"{group}", fill=BLUE if group == 0 else ORANGE, mono=True
        )
    figure.text(150, 238, "h // (Hq / Hkv) = h // 3:  0 0 0 1 1 1   right", mono=True, anchor="start")
    figure.text(
        150, 264, "h % Hkv         = h % 2 :  0 1 0 1 0 1   wrong at 1 and 4", mono=True, anchor="start", color=RED
    )
    return figure


def causal_mask() -> Figure:
    figure = Figure(
        "causal-mask", 800, 330, "Three new queries over eight keys: the mask is aligned at the bottom right",
        """
        L = 3 queries, S = 8 keys. Left, right alignment: query 0 sees keys 0 to 5, query 1 keys 0 to 6, query 2
        keys 0 to 7; query i sees keys 0 to S - L + i. Right, wrong: aligned at the top left query 0 sees key 0
        only, query 1 keys 0 and 1, query 2 keys 0 to 2, blind to the five keys of the past.
        """,
    )  # fmt: skip
    width, top = 38, 92
    for left, offset, heading, color in (
        (76, 5, "right: bottom right, j ≤ S − L + i", None),
        (460, 0, "wrong: top left, j ≤ i", RED),
    ):
        figure.text(left + 4 * width, 30, heading, bold=True, color=color or "#1f2328")
        for key in range(8):
            figure.text(left + (key + 0.5) * width, top - 14, str(key), 13, mono=True, color=FAINT)
        figure.text(left + 4 * width, top - 36, "key j", 13, color=FAINT)
        for query in range(3):
            y = top + query * width
            figure.text(left - 8, y + width / 2, f"i = {query}", 13, mono=True, color=FAINT, anchor="end")
            seen = [key <= query + offset for key in range(8)]
            figure.cells(left, y, width, width, ["•" if s else "" for s in seen], [GREEN if s else GREY for s in seen])
    figure.bracket(76, 76 + 5 * width, top + 3 * width + 6, "5 keys of the past")
    figure.bracket(76 + 5 * width + 4, 76 + 8 * width, top + 3 * width + 6, "3 new keys")
    figure.text(
        400, 276, "L = 3 queries are the last 3 of S = 8 positions: query i stands at position S − L + i = 5 + i."
    )
    figure.text(400, 304, "green: seen; grey: masked", 13, color=FAINT)
    return figure


STREAM, LEFT, WIDTH, TAG = 96, 190, 480, 700
"""Where the residual stream runs, where the operations begin and how wide they are, where their stages stand."""


class Flow:
    """Operations from the top to the bottom, beside the residual stream that they read and add to."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    def step(self, y: float, labels: str | list[str], stage: str, fill: str = BLUE) -> None:
        names = [labels] if isinstance(labels, str) else labels
        each = (WIDTH - 12 * (len(names) - 1)) / len(names)
        for number, name in enumerate(names):
            x = LEFT + number * (each + 12)
            self._figure.box(x, y, each, 34, name, fill=fill, size=13, mono=True, radius=4)
        self._figure.text(TAG, y + 17, stage, 13, anchor="start", color=FAINT)

    def down(self, y: float, *columns: float) -> None:
        for x in columns or (LEFT + WIDTH / 2,):
            self._figure.arrow((x, y), (x, y + 16))

    def from_stream(self, y: float) -> None:
        self._figure.arrow((STREAM, y), (LEFT - 2, y))

    def to_stream(self, y: float) -> None:
        self._figure.arrow((LEFT, y), (STREAM + 13, y))
        self._figure.box(STREAM - 12, y - 12, 24, 24, "+", fill=GREEN, bold=True, size=16, radius=12)
        self._figure.text(124, y + 35, "residual_add  s02", 12, anchor="start", color=FAINT)


def llama_forward() -> Figure:
    figure = Figure(
        "llama-forward", 800, 800, "The forward pass of a Llama model, operation by operation",
        """
        embedding turns ids [T] into the residual stream [T, H]. Each block first normalises it with rmsnorm,
        projects to q [T, Hq, D], k and v [T, Hkv, D] with linear layers, rotates q and k with rope, applies
        attention, projects back to [T, H] and adds the result to the stream with residual_add; then it
        normalises again, projects to gate and up [T, I], joins them with silu_mul, projects back to [T, H] and
        adds. After the last block come a final rmsnorm, the linear head, which gives float32 logits [T, V], and
        argmax for the next token.
        """,
    )  # fmt: skip
    figure.box(116, 96, 664, 520, dashed=True, stroke=FAINT, radius=8, fill="#fafbfc")
    figure.text(768, 112, "block, num_layers times", 13, anchor="end", color=FAINT)
    figure.line((STREAM, 62), (STREAM, 640), thick=3, color="#2f6f3e")
    figure.box(24, 28, 430, 34, "embedding   ids [T] → hidden [T, H]", fill=GREEN, size=13, mono=True, radius=4)
    figure.text(466, 45, "s02", 13, anchor="start", color=FAINT)
    figure.text(86, 240, "residual\nstream\n[T, H]", 13, anchor="end", color="#2f6f3e", bold=True)
    flow = Flow(figure)
    _draw_attention(figure, flow)
    _draw_mlp(flow)
    figure.line((STREAM, 640), (STREAM, 657), thick=3, color="#2f6f3e")
    flow.step(640, "rmsnorm   model.norm → [T, H]", "s03", ORANGE)
    flow.from_stream(657)
    flow.down(674)
    flow.step(690, "lm_head   → logits [T, V] float32", "s06 linear")
    flow.down(724)
    flow.step(740, "argmax   the next token of each row, int32", "s08", GREY)
    return figure


def _draw_attention(figure: Figure, flow: Flow) -> None:
    thirds = [LEFT + 152 * (number + 0.5) + 12 * number for number in range(3)]
    flow.step(124, "rmsnorm   input_layernorm → [T, H]", "s03", ORANGE)
    flow.from_stream(141)
    flow.down(158, *thirds)
    flow.step(174, ["q_proj [T,Hq,D]", "k_proj [T,Hkv,D]", "v_proj [T,Hkv,D]"], "s06 linear")
    flow.down(208, *thirds[:2])
    figure.box(LEFT, 224, 316, 34, "rope   q and k, positions [T]", fill=VIOLET, size=13, mono=True, radius=4)
    figure.text(TAG, 241, "s04", 13, anchor="start", color=FAINT)
    figure.arrow((thirds[2], 208), (thirds[2], 274))
    flow.down(258, *thirds[:2])
    flow.step(274, "attention   scale = D ** -0.5 → [T, Hq, D]", "s07", PINK)
    flow.down(308)
    flow.step(324, "o_proj   [T, Hq·D] → [T, H]", "s06 linear")
    flow.to_stream(341)


def _draw_mlp(flow: Flow) -> None:
    halves = [LEFT + 117, LEFT + 363]
    flow.step(396, "rmsnorm   post_attention_layernorm → [T, H]", "s03", ORANGE)
    flow.from_stream(413)
    flow.down(430, *halves)
    flow.step(446, ["gate_proj [T, I]", "up_proj [T, I]"], "s06 linear")
    flow.down(480, *halves)
    flow.step(496, "silu_mul   gate, up → [T, I]", "s02", GREEN)
    flow.down(530)
    flow.step(546, "down_proj   [T, I] → [T, H]", "s06 linear")
    flow.to_stream(563)
