"""A profile in the terminal: a table by source lines, the totals, and a sentence or two."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from grader.counters import Profile
from grader.observe.traffic import POOR, Totals, advice, by_line, totals
from grader.report.summary import cut
from grader.text import clean, clean_line

GOOD = 0.75
STYLES = {"good": "green", "fair": "yellow", "poor": "red"}

LEGEND = (
    "Sectors: of 32 bytes, needed → touched, for one request of a warp. Used: needed / touched. Conflicts: further "
    "passes over shared memory. Partial: requests of only some lanes of a warp, as behind if (lane == 0)."
)
COLUMNS = ("Requests", "Bytes", "Sectors", "Used", "Conflicts", "Also")
UNUSED = ("Conflicts", "Also")
"""Of those the ones that are left out where no line has anything there: the source gets their room."""


def kernel_table(profile: Profile, case: str, source: Sequence[str]) -> Iterator[RenderableType]:
    """All about one kernel; `case` is the text of the launch, `source` the lines of the kernel's file."""
    yield Text.assemble("\n", (profile.kernel, "bold"), clean_line(case, 300).removeprefix(profile.kernel))
    whole = totals(profile, profile.sites)
    rows = [(number, _row(totals(profile, sites))) for number, sites in by_line(profile.sites).items()]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, show_footer=True)
    table.add_column("Line", justify="right", style="dim", no_wrap=True, min_width=4)
    table.add_column("Source", "Total", overflow="ellipsis")  # which alone gives way
    shown: list[int] = []
    for i, (title, total) in enumerate(zip(COLUMNS, (*_row(whole)[:-1], Text("")), strict=True)):
        width = max(len(title), len(total), *(len(row[i]) for _, row in rows))
        if title in UNUSED and not any(row[i] for _, row in rows):
            continue
        table.add_column(title, total, justify="left" if title == "Also" else "right", no_wrap=True, min_width=width)
        shown.append(i)
    for number, row in rows:
        table.add_row(str(number), cut(source_line(source, number)), *(row[i] for i in shown))
    yield table
    if profile.lost:
        yield Text(f"  {profile.lost:,} requests of further instructions are not in the table.")
    for sentence in advice(profile):
        yield Text(f"  {sentence}")


def source_line(source: Sequence[str], number: int) -> str:
    """The text of a line without what it begins with, made safe; empty when the file has no such line."""
    return clean(source[number - 1], 400).strip() if number <= len(source) else ""


def figures(sums: Totals) -> tuple[str, str, str, str, str]:
    """Requests, bytes, sectors a request (needed → touched), efficiency, conflicts; empty where there are none."""
    conflicts = f"{sums.conflicts:,}" if sums.shared else ""
    if sums.efficiency is None:
        return "", "", "", "", conflicts
    per_request = f"{sums.ideal / sums.requests:.3g} → {sums.sectors / sums.requests:.3g}"
    return f"{sums.requests:,}", size(sums.bytes), per_request, f"{sums.efficiency:.0%}", conflicts


def grade(efficiency: float) -> str:
    """ "good", "fair" or "poor"."""
    return "good" if efficiency >= GOOD else "poor" if efficiency < POOR else "fair"


def extras(sums: Totals) -> str:
    """What else happens in a line: barriers and shuffles of each warp, atomics, requests of a part of the lanes."""
    requests = sums.requests + sums.shared
    told = [
        f"barrier × {sums.barriers:.3g}" if sums.barriers else "",
        f"shuffle × {sums.shuffles:.3g}" if sums.shuffles else "",
        f"atomic × {sums.atomics:,}" if sums.atomics else "",
        f"{sums.divergent / requests:.0%} partial" if sums.divergent and requests else "",
    ]
    return ", ".join(filter(None, told))


def size(count: int) -> str:
    """Bytes in the unit that leaves few digits."""
    value, unit = float(count), "B"
    for larger in ("KB", "MB", "GB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"


def _row(sums: Totals) -> tuple[Text, ...]:
    *numbers, efficiency, conflicts = figures(sums)
    style = "" if sums.efficiency is None else grade(sums.efficiency)
    return (*map(Text, numbers), Text(efficiency, STYLES.get(style, "")), Text(conflicts), Text(extras(sums)))
