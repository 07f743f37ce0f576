"""What the emulator counted in one launch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class WarpRequest:
    """One request of a warp: where its lanes loaded or stored `bytes` bytes each.

    `offsets` has one for each of the 32 lanes, None for a lane that took no part: from where the kernel's parameter
    `array` points, whose elements have `element` bytes, or from the begin of the shared `array`; without a name from
    the begin of dynamic shared memory or any address. That place is `origin` bytes past a multiple of 128. `cost` and
    `ideal` are as in Site.
    """

    cost: int
    ideal: int
    bytes: int
    block: tuple[int, ...]
    warp: int
    array: str
    element: int
    origin: int
    offsets: Sequence[int | None]


@dataclass(frozen=True)
class Site:
    """What one instruction did in a launch, by requests of warps.

    `kind` is load, store, atomic, barrier or shuffle, `space` global or shared, empty for the last two. `cost` is, in
    global memory, the 32-byte sectors that the requests touched; in shared memory the times that it had to be read or
    written, of which those beyond `ideal` are bank conflicts. `ideal` is what as many bytes need at least. `divergent`
    counts requests of a part of the lanes that were active; `addresses` adds up the different ones of each request of
    an atomic. `worst` is the request with the largest cost beyond its ideal.
    """

    file: str
    line: int
    kind: str
    space: str
    requests: int
    lanes: int
    bytes: int
    divergent: int
    cost: int
    ideal: int
    addresses: int
    worst: WarpRequest | None

    @property
    def place(self) -> str:
        """`line 25` of the kernel's file, `flash.cuh:25` of a header."""
        return f"line {self.line}" if self.file.endswith(".cu") else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Profile:
    """One launch of a kernel by its instructions, in the order of their lines.

    `lost` counts requests of instructions that were too many to tell of.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    lost: int
    sites: tuple[Site, ...]

    @classmethod
    def of_report(cls, fields: Mapping[str, Any]) -> "Profile":
        """From what the device told."""
        sites = tuple(_site(**site) for site in fields["sites"])
        return cls(**{**fields, "grid": tuple(fields["grid"]), "block": tuple(fields["block"]), "sites": sites})


def _site(worst: Mapping[str, Any] | None, **fields: Any) -> Site:
    if worst is None:
        return Site(**fields, worst=None)
    request = {**worst, "block": tuple(worst["block"]), "offsets": tuple(worst["offsets"])}
    return Site(**fields, worst=WarpRequest(**request))


@dataclass(frozen=True)
class Counters:
    """Of one launch with instrumented kernels; sectors are of 32 bytes, per request of a warp.

    `barriers` is the most that any block passed, `max_thread_accesses` the most global accesses of any thread.
    `arguments` holds (bytes loaded, bytes stored) per pointer argument, `sites` what each instruction did, where that
    was asked for.
    """

    threads: int
    blocks: int
    load_bytes: int
    store_bytes: int
    load_sectors: int
    store_sectors: int
    ideal_load_sectors: int
    ideal_store_sectors: int
    barriers: int
    shuffles: int
    max_thread_accesses: int
    accesses: int
    arguments: tuple[tuple[int, int], ...] = ()
    sites: tuple[Site, ...] = field(default=(), compare=False)

    def of(self, argument: int) -> tuple[int, int]:
        """Bytes that were (loaded, stored) through the array argument of this index; the first is 0."""
        return self.arguments[argument]
