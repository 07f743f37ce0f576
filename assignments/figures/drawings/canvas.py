"""A sheet on which a figure is drawn, and the SVG text that it becomes.

Lengths are in pixels, x to the right and y downwards. Every figure has a white panel of its own, so that it reads on
light and dark pages alike, and a title and a description for those who do not see it.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

INK, FAINT, RED = "#1f2328", "#59636e", "#b3261e"
WHITE, GREY = "#ffffff", "#e9ecef"
BLUE, GREEN, ORANGE, VIOLET, PINK = "#cfe3f7", "#d3ecd2", "#fbe0bd", "#e4dbf3", "#f7d4d2"

SANS = "'DejaVu Sans', Verdana, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"

Point = tuple[float, float]


class Figure:
    """One figure: `name` is that of its file, `title` a few words, `description` all that it shows, its line breaks
    counting as spaces."""

    def __init__(self, name: str, width: int, height: int, title: str, description: str) -> None:
        self.name, self.width, self.height = name, width, height
        self.title, self.description = title, " ".join(description.split())
        self._parts: list[str] = []

    def text(
        self, x: float, y: float, text: str, size: float = 14, *,
        anchor: str = "middle", bold: bool = False, mono: bool = False, color: str = INK,
    ) -> None:  # fmt: skip
        """One line, or several separated by line breaks, whose vertical middle is y."""
        lines = text.split("\n")
        family = MONO if mono else SANS
        weight = ' font-weight="bold"' if bold else ""
        for number, line in enumerate(lines):
            baseline = y + size * (0.36 + 1.3 * (number - (len(lines) - 1) / 2))
            self._parts.append(
                f'<text x="{x:g}" y="{baseline:.1f}" font-family="{family}" font-size="{size:g}"{weight} '
                f'text-anchor="{anchor}" fill="{color}" xml:space="preserve">{escape(line, quote=False)}</text>'
            )

    def box(
        self, x: float, y: float, width: float, height: float, label: str = "", *, fill: str = WHITE,
        size: float = 14, mono: bool = False, bold: bool = False, color: str = INK,
        stroke: str = INK, thick: float = 1, dashed: bool = False, radius: float = 0,
    ) -> None:  # fmt: skip
        """A rectangle with its label in the middle."""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="{thick:g}"{dashes}/>'
        )
        if label:
            self.text(x + width / 2, y + height / 2, label, size, mono=mono, bold=bold, color=color)

    def cells(
        self, x: float, y: float, width: float, height: float, labels: Sequence[object],
        fills: str | Sequence[str] = WHITE, *, size: float = 14, mono: bool = False, color: str = INK,
    ) -> None:  # fmt: skip
        """A row of touching boxes of one width."""
        for number, label in enumerate(labels):
            fill = fills if isinstance(fills, str) else fills[number]
            self.box(x + number * width, y, width, height, str(label), fill=fill, size=size, mono=mono, color=color)

    def line(self, *points: Point, color: str = INK, thick: float = 1.2, dashed: bool = False) -> None:
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{thick:g}"{dashes}/>')

    def arrow(self, *points: Point, color: str = INK, thick: float = 1.2, dashed: bool = False) -> None:
        """A line through the points, with a head at the last one."""
        (x1, y1), (x2, y2) = points[-2:]
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        along_x, along_y = (x2 - x1) / length, (y2 - y1) / length
        base_x, base_y = x2 - 8 * along_x, y2 - 8 * along_y
        self.line(*points[:-1], (base_x, base_y), color=color, thick=thick, dashed=dashed)
        left = (base_x - 4 * along_y, base_y + 4 * along_x)
        right = (base_x + 4 * along_y, base_y - 4 * along_x)
        head = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x2, y2), left, right))
        self._parts.append(f'<polygon points="{head}" fill="{color}"/>')

    def bracket(self, x1: float, x2: float, y: float, label: str, *, size: float = 13, below: bool = True) -> None:
        """A bracket under (or over) the stretch from x1 to x2, with its label."""
        sign = 1 if below else -1
        self.line((x1, y), (x1, y + sign * 7), (x2, y + sign * 7), (x2, y), color=FAINT)
        self.text((x1 + x2) / 2, y + sign * 18, label, size, color=FAINT)

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" aria-labelledby="title description">'
        )
        panel = (
            f'<rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8" fill="{WHITE}" '
            f'stroke="#d0d7de"/>'
        )
        title = f'<title id="title">{escape(self.title)}</title>'
        description = f'<desc id="description">{escape(self.description)}</desc>'
        return "\n".join([head, title, description, panel, *self._parts, "</svg>", ""])

    def write(self, folder: Path) -> None:
        (folder / f"{self.name}.svg").write_text(self.svg(), encoding="utf-8")
