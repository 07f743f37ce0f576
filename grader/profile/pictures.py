"""One request of a warp as a drawing (SVG): which 32-byte sectors its lanes touch, or which banks of shared memory."""

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from grader.counters import WarpRequest
from grader.observe.traffic import SECTOR, WORD

BANKS = 32
LANES = 32
WIDTH = 1088.0
LEFT = 8.0
LANE = 34.0  # from a lane, or a bank, to the next
CELL = 18.0
DROP = 96.0  # from the lanes down to the sectors
GAP = 14.0  # between sectors that are no neighbours


def sector_picture(request: WarpRequest) -> str:
    """Lanes above, the sectors below in the order of their addresses, a line from each lane to its bytes."""
    lanes = [(lane, request.origin + offset) for lane, offset in enumerate(request.offsets) if offset is not None]
    used = sorted({s for _, at in lanes for s in range(at // SECTOR, (at + request.bytes - 1) // SECTOR + 1)})
    places = _places(used)
    top = CELL + DROP
    drawn = [_box(LEFT + lane * LANE, 0, LANE - 2, str(lane), _lane_kind(request, lane)) for lane in range(LANES)]
    for sector in used:
        x, width = places[sector]
        drawn.append(f'<rect class="idle" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{CELL}"/>')
    for lane, at in lanes:
        drawn += _used_bytes(lane, at, request.bytes, places, top)
    for before, after in pairwise(used):
        if after > before + 1:
            x = (sum(places[before]) + places[after][0]) / 2
            drawn.append(_text(x, top + 13, "⋯"))
    for sector, anchor in ((used[0], "start"), (used[-1], "end"))[: len(used)]:
        x, width = places[sector]
        label = _address(request, sector * SECTOR - request.origin)
        drawn.append(_text(x if anchor == "start" else x + width, top + CELL + 15, label, anchor))
    return _svg(drawn, top + CELL + 22, f"{len(lanes)} lanes on {len(used)} sectors")


def bank_picture(request: WarpRequest) -> str:
    """A column for each bank; in it, one below the other, the different words that lanes want of it at once."""
    together = max(1, BANKS * WORD // max(WORD, request.bytes))
    drawn = [_text(LEFT + (bank + 0.5) * LANE, 11, str(bank) if bank else "bank 0") for bank in range(BANKS)]
    top = CELL
    for first in range(0, LANES, together):
        words = _words(request, range(first, first + together))
        if not words:
            continue
        depth: dict[int, int] = {}
        for word, lanes in sorted(words.items()):
            bank = word % BANKS
            row = depth[bank] = depth.get(bank, 0) + 1
            kind = "word" if row == 1 else "conflict"
            drawn.append(_box(LEFT + bank * LANE, top + (row - 1) * CELL, LANE - 2, _names(lanes), kind))
        idle = [bank for bank in range(BANKS) if bank not in depth]
        drawn += [_box(LEFT + bank * LANE, top, LANE - 2, "", "absent") for bank in idle]
        top += max(depth.values()) * CELL + 8
    return _svg(drawn, top, "lanes by banks of shared memory")


def _places(used: list[int]) -> dict[int, tuple[float, float]]:
    """Left edge and width of each sector, side by side, with gaps where sectors are left out."""
    gaps = sum(after > before + 1 for before, after in pairwise(used))
    gap = min(GAP, WIDTH / 4 / max(gaps, 1))
    width = min(4 * LANE, (WIDTH - gaps * gap) / len(used))
    places, x = {}, LEFT + (WIDTH - len(used) * width - gaps * gap) / 2
    for before, sector in zip([used[0], *used], used, strict=False):
        x += gap if sector > before + 1 else 0
        places[sector] = (x, width - 1)
        x += width
    return places


def _used_bytes(lane: int, at: int, size: int, places: dict[int, tuple[float, float]], top: float) -> Iterator[str]:
    """The bytes of a lane in its sectors, and the line to the first of them."""
    for sector in range(at // SECTOR, (at + size - 1) // SECTOR + 1):
        x, width = places[sector]
        begin, stop = max(at, sector * SECTOR), min(at + size, (sector + 1) * SECTOR)
        left, right = (x + width * (byte - sector * SECTOR) / SECTOR for byte in (begin, stop))
        yield f'<rect class="used" x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{CELL}"/>'
        if begin == at:
            start, end, middle = LEFT + lane * LANE + (LANE - 2) / 2, (left + right) / 2, CELL + DROP / 2
            yield f'<path d="M{start:.1f} {CELL}C{start:.1f} {middle} {end:.1f} {middle} {end:.1f} {top}"/>'


def _words(request: WarpRequest, lanes: range) -> dict[int, list[int]]:
    """The lanes that want each word of shared memory."""
    wanted: dict[int, list[int]] = {}
    for lane in lanes:
        offset = request.offsets[lane]
        if offset is not None:
            for word in range(offset // WORD, (offset + request.bytes - 1) // WORD + 1):
                wanted.setdefault(word, []).append(lane)
    return wanted


def _names(lanes: list[int]) -> str:
    """Of lanes that want the same word, as short as a box wants it."""
    if len(lanes) <= 2:
        return ",".join(map(str, lanes))
    is_run = lanes[-1] - lanes[0] == len(lanes) - 1
    return f"{lanes[0]}–{lanes[-1]}" if is_run else f"×{len(lanes)}"


def _lane_kind(request: WarpRequest, lane: int) -> str:
    return "lane" if request.offsets[lane] is not None else "absent"


def _address(request: WarpRequest, offset: int) -> str:
    if not request.array:
        return f"+{offset:,} B"
    return f"{request.array}[{max(offset, 0) // request.element:,}]"


def _box(x: float, y: float, width: float, text: str, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{CELL - 2}" rx="3"/>'
        f"{_text(x + width / 2, y + 12, text, kind=kind)}"
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "note") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: list[str], height: float, label: str) -> str:
    box = f"0 0 {WIDTH + 2 * LEFT:.0f} {height:.0f}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
