"""The device's memory: a sparse file, mapped here and by the client, from which allocations are cut.

Memory nobody wrote, and memory that was freed, holds NaNs. Freed memory rests a while before it is used again, so that
a stale pointer meets poison and not somebody else's numbers. What was never allocated cannot be accessed at all, nor
can large allocations that were freed.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
import sys
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Sequence

ALIGNMENT = 256
GAP, WIDE_GAP = 256, 1 << 20  # bytes behind each allocation that belong to none, and so many in checked programs
PAGE = 1 << 16  # a multiple of every system's page
LARGE = 1 << 20  # from here on, an allocation has pages of its own, and they go back to the system
MAX_POISONED = 64 << 20  # of a larger allocation only the begin and the end are poisoned
MAX_RESTING = 1024
CHUNK = 1 << 20
FOR_SMALL = 1 << 30  # addresses at the file's end that no large allocation gets
POISON = 0xFF
_PROT_NONE, _REMOVE, _FIXED = 0, 9, 0x10
_PUNCH_HOLE = 99  # of macOS's fcntl
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE

_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Arena:
    """`base` is the file's first byte here; `used` and `peak` are bytes of allocations.

    Nothing is allocated beyond `limit` bytes in use, the capacity at first; `gap` bytes part allocations. The owner may
    change both.
    """

    def __init__(self, file: int, size: int, capacity: int) -> None:
        """Map `size` bytes of the file, of which programs may use `capacity`. Raises OSError."""
        address = _libc.mmap(None, size, _PROT_NONE, mmap.MAP_SHARED, file, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError("the device's memory cannot be mapped: is the address space limited (ulimit -v)?")
        self.base: int = address
        self.size = size
        self.capacity = self.limit = capacity
        self.used = self.peak = 0
        self.gap = GAP
        self._file = file
        self._frontier = self.base + LARGE  # where no allocation has been yet
        self._sizes: dict[int, int] = {}
        self._extents: dict[int, int] = {}
        self._begins: list[int] = []  # sorted
        self._resting: deque[tuple[int, int]] = deque()  # (extent, begin)
        self._vacant: dict[int, list[int]] = {}  # by extent

    @property
    def free_bytes(self) -> int:
        return max(min(self.capacity, self.limit) - self.used, 0)

    def allocate(self, size: int) -> int | None:
        """The address of a new allocation, a multiple of 256; None when there is too little memory left."""
        extent = _extent(size, self.gap)
        begin = self._place(extent) if size <= self.free_bytes else None
        if begin is None:
            return None
        first = (begin - self.base) // PAGE * PAGE + self.base
        _libc.mprotect(first, -(-(begin + _extent(size, GAP) - first) // PAGE) * PAGE, _READ_WRITE)
        self._sizes[begin] = size
        self._extents[begin] = extent
        insort(self._begins, begin)
        self.used += size
        self.peak = max(self.peak, self.used)
        _poison(begin, size)
        return begin

    def free(self, begin: int) -> None:
        """An address that is no allocation's is ignored."""
        size = self._sizes.pop(begin, None)
        if size is None:
            return
        del self._begins[bisect_right(self._begins, begin) - 1]
        self.used -= size
        if size >= LARGE:
            self._release(begin, _extent(size, GAP))
            _libc.mprotect(begin, _extent(size, GAP), _PROT_NONE)
        else:
            _poison(begin, size)
        self._resting.append((self._extents.pop(begin), begin))
        if len(self._resting) > MAX_RESTING:
            extent, rested = self._resting.popleft()
            self._vacant.setdefault(extent, []).append(rested)

    def allocations(self) -> list[tuple[int, int]]:
        """(begin, bytes) of each, ascending."""
        return [(begin, self._sizes[begin]) for begin in self._begins]

    def find(self, address: int) -> tuple[int, int]:
        """(begin, bytes) of the allocation that holds the address; (address, 0) when none does."""
        position = bisect_right(self._begins, address) - 1
        if position >= 0:
            begin = self._begins[position]
            if address < begin + self._sizes[begin]:
                return begin, self._sizes[begin]
        return address, 0

    def holds(self, address: int, size: int) -> bool:
        """Whether these bytes lie in one allocation."""
        begin, found = self.find(address)
        return size == 0 or (0 <= size <= begin + found - address)

    def freed(self, address: int) -> int | None:
        """The bytes of the freed memory that the address is in; None when it is in none."""
        for extent, begin in self._resting:
            if begin <= address < begin + extent:
                return extent
        return None

    def describe(self, address: int) -> str:
        """Where an address is that belongs to no allocation."""
        if not self.base <= address < self.base + self.size:
            return f"address {address:#x} is not in device memory"
        position = bisect_right(self._begins, address)
        behind = [address - begin - self._sizes[begin] for begin in self._begins[max(position - 1, 0) : position]]
        before = [begin - address for begin in self._begins[position : position + 1]]
        if behind and (not before or behind[0] <= before[0]):
            size = self._sizes[self._begins[position - 1]]
            return f"address {address:#x} is {behind[0]} bytes past the end of an allocation of {size} bytes"
        if before:
            size = self._sizes[self._begins[position]]
            return f"address {address:#x} is {before[0]} bytes before an allocation of {size} bytes"
        return f"address {address:#x} was never allocated"

    def first_written(self, begin: int, size: int, skipped: Sequence[Sequence[int]]) -> int | None:
        """The offset from `begin` of the first byte that is not 0, outside of the skipped ranges of offsets.

        These ascend. Only what was ever touched is read.
        """
        offset = 0
        for first, last in (*skipped, (size, size)):
            found = self._first_nonzero(begin - self.base + offset, begin - self.base + first)
            if found is not None:
                return found + self.base - begin
            offset = last
        return None

    def _first_nonzero(self, position: int, end: int) -> int | None:
        """The position in the file of the first byte before `end` that is not 0."""
        while position < end:
            hole = end
            if sys.platform == "linux":  # elsewhere, what was written through a mapping may pass for a hole
                try:
                    position = os.lseek(self._file, position, os.SEEK_DATA)
                except OSError:  # nothing but a hole up to the file's end
                    return None
                hole = os.lseek(self._file, position, os.SEEK_HOLE)
            stop = min(hole, position + CHUNK, end)
            content = ctypes.string_at(self.base + position, max(stop - position, 0))
            written = content.lstrip(b"\0")
            if written:
                return stop - len(written)
            position = max(stop, position + 1)
        return None

    def _release(self, begin: int, size: int) -> None:
        """Give pages of the file back to the system, where it takes them."""
        if sys.platform == "linux":
            _libc.madvise(begin, size, _REMOVE)
            return
        with contextlib.suppress(OSError):  # macOS: fpunchhole_t
            fcntl.fcntl(self._file, _PUNCH_HOLE, struct.pack("IIqq", 0, 0, begin - self.base, size))

    def fill(self, address: int, element: bytes, count: int) -> None:
        """Repeat the element `count` times from the address on; large zeros take no memory until they are written."""
        if len(element) * count > MAX_POISONED and not any(element) and sys.platform == "linux":
            begin = -(-(address - self.base) // PAGE) * PAGE + self.base
            end = (address + len(element) * count - self.base) // PAGE * PAGE + self.base
            _libc.madvise(begin, end - begin, _REMOVE)
            ctypes.memset(address, 0, begin - address)
            ctypes.memset(end, 0, address + len(element) * count - end)
            return
        ctypes.memmove(address, element, min(count, 1) * len(element))
        done = 1
        while done < count:
            step = min(done, count - done)
            ctypes.memmove(address + done * len(element), address, step * len(element))
            done += step

    def adopt(self, address: int, size: int) -> int | None:
        """Move variables of this process into the device's memory; returns their address there, None without room.

        The pages that hold them show the same memory afterwards.
        """
        first = address // mmap.PAGESIZE * mmap.PAGESIZE
        extent = -(-(address + size - first) // mmap.PAGESIZE) * mmap.PAGESIZE
        begin = self.allocate(max(extent, LARGE))  # large ones begin at a page
        if begin is None:
            return None
        ctypes.memmove(begin, first, extent)
        _libc.mmap(first, extent, _READ_WRITE, mmap.MAP_SHARED | _FIXED, self._file, begin - self.base)
        return begin + address - first

    def _place(self, extent: int) -> int | None:
        if self._vacant.get(extent):
            return self._vacant[extent].pop()
        begin = self._frontier
        if extent >= LARGE:
            begin = -(-(begin - self.base) // PAGE) * PAGE + self.base
        if begin + extent > self.base + self.size - (FOR_SMALL if extent >= LARGE else 0):
            return self._place_again(extent)
        self._frontier = begin + extent
        return begin

    def _place_again(self, extent: int) -> int | None:
        """When every address was used once: the smallest freed place that is large enough; None when there is none."""
        for rested_extent, rested in self._resting:
            self._vacant.setdefault(rested_extent, []).append(rested)
        self._resting.clear()
        most = None if extent >= LARGE else extent  # small ones have places of their own size
        fitting = [found for found, places in self._vacant.items() if places and extent <= found <= (most or found)]
        if not fitting:
            return None
        found = min(fitting)
        begin = self._vacant[found].pop()
        if found > extent:
            self._vacant.setdefault(found - extent, []).append(begin + extent)
        return begin


def _extent(size: int, gap: int) -> int:
    unit = PAGE if size >= LARGE else ALIGNMENT
    return -(-(size + gap) // unit) * unit


def _poison(begin: int, size: int) -> None:
    edge = min(size, MAX_POISONED // 2)
    ctypes.memset(begin, POISON, edge)
    ctypes.memset(begin + max(edge, size - edge), POISON, size - max(edge, size - edge))
