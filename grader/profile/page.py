"""A profile as a page: the kernels' sources with a bar and figures for each line, and a drawing of its worst request.

One file, which loads nothing. All text of a submission is escaped.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from grader.counters import Profile, Site
from grader.observe.traffic import NOTABLE, SECTOR, Totals, advice, by_line, totals
from grader.profile.launches import Launched
from grader.profile.pictures import bank_picture, sector_picture
from grader.profile.table import extras, figures, grade, size
from grader.text import clean, clean_line

TEMPLATE = Path(__file__).with_name("page.html")
MAX_LINE = 400
HEADINGS = ("Requests", "Bytes", "Sectors a request<br>needed → touched", "Efficiency", "Bank<br>conflicts", "Also")


def page(submission: str, launched: Mapping[str, Launched], sources: Mapping[str, Sequence[str]]) -> str:
    """The page on some kernels; `sources` has the lines of each one's file."""
    sections = [_section(found.profile, found.case, sources[name]) for name, found in launched.items()]
    title = f"Memory of the kernels in {escape(clean_line(submission))}"
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(title=title, kernels="\n".join(sections))


def _section(profile: Profile, case: str, source: Sequence[str]) -> str:
    whole, lines = totals(profile, profile.sites), by_line(profile.sites)
    told = advice(profile)
    kind = "advice" if any(sentence.startswith("line ") for sentence in told) else "advice praise"
    opened = _opened({number: totals(profile, sites) for number, sites in lines.items()})
    head = "".join(f"<th>{heading}" for heading in HEADINGS)
    rows = [
        _row(profile, whole, number, source[number - 1], lines.get(number, []), is_open=number in opened)
        for number in _extent(profile.kernel, source, lines)
    ]
    return (
        f'<section><h2>{escape(profile.kernel)}</h2><p class="case">{escape(clean_line(case))}</p>'
        f'<div class="cards">{"".join(_cards(whole))}</div>'
        + "".join(f'<p class="{kind}">{escape(sentence[:1].upper() + sentence[1:])}</p>' for sentence in told)
        + f'<div class="scroll"><table><tr><th><th><th class="source">Source{head}</tr>'
        + "".join(rows)
        + "</table></div></section>"
    )


def _cards(whole: Totals) -> list[str]:
    cards = [(f"{whole.requests:,}", "requests to global memory", ""), (size(whole.bytes), "asked for", "")]
    if whole.efficiency is not None:
        cards.append((size(SECTOR * whole.sectors), "moved in sectors", ""))
        cards.append((f"{whole.efficiency:.0%}", "efficiency", grade(whole.efficiency)))
    if whole.shared:
        kind = (
            "good"
            if whole.conflicts <= NOTABLE * whole.passes
            else "poor"
            if whole.conflicts > whole.passes / 2
            else "fair"
        )
        cards += [
            (f"{whole.shared:,}", "requests to shared memory", ""),
            (f"{whole.conflicts:,}", "bank conflicts", kind),
        ]
    if whole.barriers:
        cards.append((f"{whole.barriers:.3g}", "barriers of a warp", ""))
    return [f'<div class="card {kind}"><b>{number}</b><span>{text}</span></div>' for number, text, kind in cards]


def _extent(kernel: str, source: Sequence[str], lines: Mapping[int, object]) -> range:
    """The lines to show: from the kernel's head, or an earlier line that it uses, to a little behind its last one."""
    heads = [i for i, text in enumerate(source, 1) if re.search(rf"\b{kernel}\s*\(", text) and "//" not in text]
    used = [number for number in lines if number <= len(source)]
    first, last = min([*heads[:1], *used], default=1), max(used, default=len(source))
    return range(max(1, first - 1), min(len(source), last + 4) + 1)


def _row(profile: Profile, whole: Totals, number: int, text: str, sites: Sequence[Site], *, is_open: bool) -> str:
    code, comment, rest = clean(text, MAX_LINE).partition("//")
    source = escape(code) + (f"<em>{escape(comment + rest)}</em>" if comment else "")
    if not sites:
        return f'<tr><td class="number">{number}<td><td class="source" colspan="7">{source}</tr>'
    sums = totals(profile, sites)
    cells = "".join(f"<td>{escape(cell)}" for cell in figures(sums))
    worst_first = sorted((site for site in sites if site.worst), key=lambda site: (site.space, site.ideal - site.cost))
    pictures = "".join(map(_picture, worst_first))
    row = (
        f'<tr class="{"busy" if pictures else "met"}"><td class="number">{number}<td class="bar">{_bars(sums, whole)}'
        f'<td class="source" title="{escape(clean(text, MAX_LINE).strip())}">{source}{cells}'
        f'<td class="also">{escape(extras(sums))}</tr>'
    )
    if not pictures:
        return row
    return f'{row}<tr class="picture"{"" if is_open else " hidden"}><td colspan="9">{pictures}</td></tr>'


def _bars(sums: Totals, whole: Totals) -> str:
    """The line's share of all sectors, and of all passes over shared memory."""
    bars = [(sums.ideal, sums.sectors, whole.sectors, "used", "idle")]
    bars.append((sums.passes - sums.conflicts, sums.passes, whole.passes, "word", "conflict"))
    return "".join(
        f'<div class="heat"><i class="{needed}" style="width:{100 * ideal / total:.2f}%"></i>'
        f'<i class="{beyond}" style="width:{100 * (actual - ideal) / total:.2f}%"></i></div>'
        for ideal, actual, total, needed, beyond in bars
        if actual
    )


def _picture(site: Site) -> str:
    request = site.worst
    assert request is not None
    lanes = sum(offset is not None for offset in request.offsets)
    block = ", ".join(map(str, request.block))
    one, several = ("pass", "passes") if site.space == "shared" else ("sector", "sectors")
    what = (one if request.cost == 1 else several) + " over shared memory" * (site.space == "shared")
    where = f" {'from' if site.kind == 'load' else 'to'} {request.array}" if request.array else ""
    told = (
        f"{site.kind} of {request.bytes} bytes{where} by {lanes} lanes of warp {request.warp} in block ({block}): "
        f"{request.cost} {what}; {request.ideal} would do."
    )
    drawing = bank_picture(request) if site.space == "shared" else sector_picture(request)
    return f"<p>{escape(told[:1].upper() + told[1:])}</p>{drawing}"


def _opened(lines: Mapping[int, Totals]) -> set[int]:
    """The lines whose drawings are shown at first: those that waste the most, or the busiest one."""
    wasted = {
        max(lines, key=lambda number: lines[number].sectors - lines[number].ideal, default=0),
        max(lines, key=lambda number: lines[number].conflicts, default=0),
    }
    wasted = {n for n in wasted if n and (lines[n].sectors > lines[n].ideal or lines[n].conflicts)}
    return wasted or {max(lines, key=lambda number: lines[number].sectors, default=0)}
