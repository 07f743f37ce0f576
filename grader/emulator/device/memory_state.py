"""What a device checks while it is watched: which memory kernels may use, which of it holds something, their faults."""

from collections.abc import Sequence
from typing import Any

from grader.emulator.arena import GAP, WIDE_GAP, Arena
from grader.emulator.native import Checks, Launch, LoadedModule, Pointer, Runtime
from grader.emulator.reports.messages import tell_of_returned
from grader.emulator.reports.reports import Memory, merged, readable

MAX_MARKED = 256 << 20
"""Larger allocations count as written, since the marks of each byte take memory themselves."""


class Checking:
    """The checks since a moment; all memory that was allocated before it counts as written.

    An object of this class that is not `active` lets every method pass.
    """

    def __init__(self, runtime: Runtime, arena: Arena, *, active: bool) -> None:
        self.active = active
        self._runtime = runtime
        self._arena = arena
        self._arrays: dict[int, tuple[int, int]] = {}  # by the begin of their allocation
        self._reports: list[dict[str, Any]] = []
        arena.gap = WIDE_GAP if active else GAP
        if active:
            runtime.forget()

    def allocated(self, begin: int, size: int) -> None:
        """Memory of so many bytes is new: nobody has written it."""
        self._arrays.pop(begin, None)
        self._mark(begin, size, False)

    def written(self, begin: int, size: int) -> None:
        """These bytes hold something."""
        self._mark(begin, size, True)

    def array(self, begin: int, size: int, is_written: bool) -> None:
        """Of the allocation at this place no more than the array may be used."""
        allocation, found = self._arena.find(begin)
        if self.active and found:
            self._arrays[allocation] = begin, size
        self._mark(begin, size, is_written)

    def checks(self, module: LoadedModule, kernel: str) -> Checks:
        """What a launch of this kernel is checked against."""
        return module.checks(kernel, self._usable())

    def collect(self, launch: Launch, checks: Checks, module: LoadedModule, pointers: Sequence[Pointer]) -> None:
        """Keep what was found in a launch with these pointers as arguments."""
        if checks.num_reports:
            memory = Memory(self._arena, self._usable(), module, launch, pointers)
            found = [readable(report, memory) for report in checks.reports[: checks.num_reports]]
            tell_of_returned(found)
            self._reports = merged(self._reports + found)

    def report(self) -> list[dict[str, Any]]:
        """What was found since the begin, see reports.py."""
        return self._reports

    def _usable(self) -> list[tuple[int, int]]:
        """(begin, bytes) of what kernels may use of each allocation."""
        return [self._arrays.get(begin, (begin, size)) for begin, size in self._arena.allocations()]

    def _mark(self, begin: int, size: int, is_written: bool) -> None:
        if self.active and 0 < size <= MAX_MARKED:
            self._runtime.mark(begin, size, is_written)
