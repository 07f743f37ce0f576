"""What the emulator counted in one launch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Counters:
    """Of one launch with instrumented kernels; sectors are of 32 bytes, per request of a warp.

    `barriers` is the most that any block passed, `max_thread_accesses` the most global accesses of any thread.
    `arguments` holds (bytes loaded, bytes stored) per pointer argument.
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

    def of(self, argument: int) -> tuple[int, int]:
        """Bytes that were (loaded, stored) through the array argument of this index; the first is 0."""
        return self.arguments[argument]

    @classmethod
    def of_launches(cls, launches: Sequence[Mapping[str, Any]]) -> "Counters":
        """The counters of the only launch; raises ValueError when there was none or more."""
        if len(launches) != 1:
            raise ValueError(f"{len(launches)} launches were counted; one was expected")
        return cls(**launches[0])
