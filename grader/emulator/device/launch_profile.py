"""What the instructions of a profiled launch did, as plain data."""

from collections.abc import Sequence
from typing import Any

from grader.emulator.native import SITE_KINDS, WARP, Launch, LoadedModule, NativeSite, Pointer, WorstRequest
from grader.emulator.reports.reports import GLOBAL, STATIC_SHARED, variable_name

SPACES = ("global", "shared", "shared", "")
COUNTS = ("requests", "lanes", "bytes", "divergent", "cost", "ideal", "addresses")


class LaunchProfile:
    """One launch; the lines of its instructions are looked up when it is told."""

    def __init__(
        self, launch: Launch, module: LoadedModule, pointers: Sequence[Pointer], allocations: Sequence[tuple[int, int]]
    ) -> None:
        """`pointers` are among the launch's arguments, `allocations` begin and bytes of what they point into."""
        table = launch.sites.contents
        self.name = launch.name.decode()
        self._module = module
        self._sites = [NativeSite.from_buffer_copy(slot) for slot in table.slots if slot.instruction]
        self._arrays = list(zip(pointers, allocations, strict=True))
        self._launch = {
            "kernel": self.name,
            "grid": list(launch.grid),
            "block": list(launch.block),
            "shared": launch.dynamic_shared,
            "lost": table.lost,
        }
        self.cost = sum(site.cost for site in self._sites)
        """Of all requests, to tell which launch of a kernel did the most."""

    def report(self) -> dict[str, Any]:
        """The fields of grader.observe.counters.Profile."""
        places = self._module.source_lines([site.instruction for site in self._sites])
        sites = [self._site(site, *place) for site, place in zip(self._sites, places, strict=True)]
        return {**self._launch, "sites": sorted(sites, key=lambda site: (site["file"], site["line"]))}

    def _site(self, site: NativeSite, file: str, line: int) -> dict[str, Any]:
        counts = {name: getattr(site, name) for name in COUNTS}
        worst = self._worst(site.space, site.worst) if site.worst.lanes else None
        named = {"file": file, "line": line, "kind": SITE_KINDS[site.kind], "space": SPACES[site.space]}
        return {**named, **counts, "worst": worst}

    def _worst(self, space: int, request: WorstRequest) -> dict[str, Any]:
        lanes = [lane for lane in range(WARP) if request.lanes >> lane & 1]
        array, element, origin = self._array(space, request.addresses[lanes[0]])
        return {
            "cost": request.cost,
            "ideal": request.ideal,
            "bytes": request.bytes,
            "block": list(request.block),
            "warp": request.warp,
            "array": array,
            "element": element,
            "origin": origin % 128,
            "offsets": [request.addresses[lane] - origin if lane in lanes else None for lane in range(WARP)],
        }

    def _array(self, space: int, address: int) -> tuple[str, int, int]:
        """Name, bytes of an element and begin of the array at an address; without a name, of memory as a whole."""
        if space == GLOBAL:
            for (name, element, pointer), (begin, size) in self._arrays:
                if begin <= address < begin + size:
                    return name, max(element, 1), pointer
            return "", 1, address // 128 * 128
        if space == STATIC_SHARED:
            for symbol, (begin, size, _) in self._module.module.shared_variables.items():
                if begin <= address < begin + size:
                    return variable_name(symbol), 1, begin
        return "", 1, 0
