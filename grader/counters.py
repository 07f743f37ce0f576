"""What the emulator counted in one launch."""

from dataclasses import dataclass


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
