"""A profile by source lines, and what it says in words about the worst of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil, prod

from grader.observe.counters import Profile, Site, WarpRequest

Line = tuple[str, int]
"""The name of a file, and a number in it."""

SECTOR = 32
WORD = 4
POOR = 0.25
"""Below this efficiency an access counts as uncoalesced."""

NOTABLE = 0.1
"""A line is worth a sentence when so much of all that its kernel moves could be saved there."""

SEVERAL = 4
"""And an atomic, when so many lanes of a request update the same address."""


@dataclass(frozen=True)
class Totals:
    """Sums over instructions. `requests`, `bytes`, `sectors` and `ideal` are of global memory.

    `shared` counts requests to shared memory, `passes` how often it was read or written for them, `conflicts` those of
    the passes that would not be needed without bank conflicts. `barriers` and `shuffles` are per warp.
    """

    requests: int
    bytes: int
    sectors: int
    ideal: int
    shared: int
    passes: int
    conflicts: int
    atomics: int
    barriers: float
    shuffles: float
    divergent: int

    @property
    def efficiency(self) -> float | None:
        """The part of the sectors that the bytes need at least; None where global memory is not used."""
        return self.ideal / self.sectors if self.sectors else None


def totals(profile: Profile, sites: Iterable[Site]) -> Totals:
    """Of some instructions of a launch."""
    sites = list(sites)
    in_global = [site for site in sites if site.space == "global"]
    in_shared = [site for site in sites if site.space == "shared"]
    kinds: Counter[str] = Counter()
    for site in sites:
        kinds[site.kind] += site.requests
    return Totals(
        requests=sum(site.requests for site in in_global),
        bytes=sum(site.bytes for site in in_global),
        sectors=sum(site.cost for site in in_global),
        ideal=sum(site.ideal for site in in_global),
        shared=sum(site.requests for site in in_shared),
        passes=sum(site.cost for site in in_shared),
        conflicts=sum(site.cost - site.ideal for site in in_shared),
        atomics=kinds["atomic"],
        barriers=kinds["barrier"] / num_warps(profile),
        shuffles=kinds["shuffle"] / num_warps(profile),
        divergent=sum(site.divergent for site in (*in_global, *in_shared)),
    )


def num_warps(profile: Profile) -> int:
    """Of all blocks together."""
    return prod(profile.grid) * ceil(prod(profile.block) / 32)


def by_line(sites: Iterable[Site]) -> dict[Line, list[Site]]:
    """The instructions of each line that is known, in order: those of the kernel's file, then those of headers."""
    known = sorted((site for site in sites if site.line), key=lambda site: (site.file[-3:] != ".cu", _line(site)))
    return {line: list(group) for line, group in groupby(known, _line)}


def advice(profile: Profile) -> list[str]:
    """A sentence on each kind of waste that matters, the worst line of it; one of praise where nothing does."""
    whole = totals(profile, profile.sites)
    found = [*_global_advice(profile, whole), *_shared_advice(profile, whole), *_atomic_advice(profile)]
    if found or not profile.sites:
        return found
    praise = "Little is wasted here: no line moves many more sectors than its bytes need, or waits much for banks"
    conflicts = f" ({whole.conflicts:,} of {whole.passes:,} passes over shared memory are conflicts)"
    return [praise + conflicts * bool(whole.conflicts) + "."]


def uncoalesced(sites: Iterable[Site], planned: Sequence[str] = ()) -> str:
    """One sentence on the worst line whose loads or stores use less than a quarter of what they move, if any.

    Loads of the arrays `planned` may be so.
    """
    poor = [site for site in sites if _moves(site) and site.ideal < POOR * site.cost and not _loads(site, planned)]
    return f"uncoalesced: {_global_sentence(max(poor, key=_excess))}" if poor else ""


def most_wasteful(sites: Iterable[Site]) -> str:
    """One sentence on the line that moves the most sectors beyond what its bytes need, if any."""
    worst = max(filter(_moves, sites), key=_excess, default=None)
    return _global_sentence(worst) if worst is not None and _excess(worst) else ""


def busiest(sites: Iterable[Site], array: str = "") -> str:
    """Which line asks for the most bytes of global memory: " (line 25 alone for 4,096)", empty where none is known.

    With `array`, of those of this array that are loaded.
    """
    sites = [site for site in sites if not array or _loads(site, (array,))]
    busiest = max(by_line(sites).values(), key=lambda group: sum(map(_bytes, group)), default=[])
    total = sum(map(_bytes, busiest))
    return f" ({busiest[0].place} alone for {total:,})" if total else ""


def _line(site: Site) -> Line:
    return site.file, site.line


def _bytes(site: Site) -> int:
    return site.bytes if site.space == "global" else 0


def _loads(site: Site, arrays: Sequence[str]) -> bool:
    return site.kind == "load" and site.worst is not None and site.worst.array in arrays


def _moves(site: Site) -> bool:
    return site.space == "global" and site.kind in ("load", "store")


def _excess(site: Site) -> int:
    return site.cost - site.ideal


def _global_advice(profile: Profile, whole: Totals) -> Iterator[str]:
    worst = max(filter(_moves, profile.sites), key=_excess, default=None)
    if worst is not None and _excess(worst) > NOTABLE * whole.sectors:
        yield _global_sentence(worst)


def _global_sentence(site: Site) -> str:
    assert site.worst is not None
    verb = "load" if site.kind == "load" else "store to"
    means = f"each request touches {each(site.cost, site)} sectors where {each(site.ideal, site)} would do"
    step = lane_step(site.worst)
    if step is None:
        why = f"the addresses that the threads of a warp {verb} are scattered"
        remedy = "let neighbouring threads (threadIdx.x) take neighbouring elements"
    elif abs(step) == site.worst.bytes and (pieces := _pieces(site.worst)) > 1:
        why = f"what the threads of a warp {verb} lies in {pieces} pieces"
        remedy = "let neighbouring threads take neighbouring elements"
    elif abs(step) == site.worst.bytes:
        why = f"what the threads of a warp {verb} begins in the middle of a sector"
        remedy = f"let each warp begin at a multiple of {SECTOR} bytes"
    else:
        why = f"neighbouring threads {verb} addresses {abs(step):,} bytes apart"
        remedy = "let threadIdx.x run along the dimension whose elements lie side by side"
    return f"{site.place}: {means}: {why}; {remedy}."


def _shared_advice(profile: Profile, whole: Totals) -> Iterator[str]:
    in_shared = [site for site in profile.sites if site.space == "shared" and site.kind != "atomic"]
    worst = max(in_shared, key=_excess, default=None)
    if worst is None or _excess(worst) <= NOTABLE * whole.passes:
        return
    assert worst.worst is not None
    step = lane_step(worst.worst)
    apart = "their addresses are scattered" if step is None else f"neighbouring threads are {abs(step):,} bytes apart"
    yield (
        f"{worst.place}: shared memory serves each request in {each(worst.cost, worst)} passes where "
        f"{each(worst.ideal, worst)} would do: {apart}, so that several of a warp want different words of one bank; "
        "make each row of the array a word longer, or let neighbouring threads take neighbouring words."
    )


def _atomic_advice(profile: Profile) -> Iterator[str]:
    atomics = [site for site in profile.sites if site.kind == "atomic" and site.lanes >= SEVERAL * site.addresses]
    worst = max(atomics, key=lambda site: site.lanes - site.addresses, default=None)
    if worst is not None:
        yield (
            f"{worst.place}: {worst.lanes / worst.addresses:.3g} lanes of a warp update one address, one after the "
            "other; add up within the warp first (shuffles), then let one lane update."
        )


def each(count: int, site: Site) -> str:
    """A count per request, as a short number."""
    return f"{count / site.requests:.3g}"


def _pieces(request: WarpRequest) -> int:
    """In how many places the bytes of a request lie, taken in the order of the lanes."""
    begins = [offset for offset in request.offsets if offset is not None]
    return 1 + sum(abs(after - before) != request.bytes for before, after in pairwise(begins))


def lane_step(request: WarpRequest) -> int | None:
    """Bytes from one lane's address to the next one's, where most neighbours agree; None where they do not."""
    neighbours = pairwise(request.offsets)
    steps = Counter(after - before for before, after in neighbours if before is not None and after is not None)
    if not steps:
        return None
    step, times = steps.most_common(1)[0]
    return step if 2 * times > steps.total() else None
