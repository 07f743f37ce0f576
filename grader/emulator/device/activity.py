"""What the device did since its owner began to watch.

Everything here is counted where the work is done, so that a program cannot leave any of it out, except copies between
host and device: those its pycuda makes in shared memory and reports.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from grader.emulator.device.launch_profile import LaunchProfile
from grader.emulator.native import LaunchCounters

MAX_GEMMS = 1 << 18
MAX_KERNELS = 1 << 15
"""Of so many matrix products, and of so many counted launches, the details are kept; all are counted."""
DIRECTIONS = ("device", "host")

Gemm = tuple[int, int, int, int]


class Observation:
    """Counts since its begin. With `counted`, also the counters of every launch, by instrumented kernels.

    With `profiled`, besides, what each instruction did, in that launch of each kernel that moved the most.
    """

    def __init__(self, counted: bool = False, profiled: bool = False) -> None:
        self.counted = counted
        self.profiled = profiled
        self._profiles: dict[str, LaunchProfile] = {}
        self.launches: Counter[str] = Counter()
        self.num_gemms = self.num_kernels = 0
        self.allocations = self.memsets = self.device_copies = self.device_copied_bytes = 0
        self._copies = dict.fromkeys(DIRECTIONS, 0)
        self._copied_bytes = dict.fromkeys(DIRECTIONS, 0)
        self._gemms: list[Gemm] = []
        self._known_gemms: dict[Gemm, Gemm] = {}  # a product of every step is one tuple
        self._kernels: list[tuple[str, int, bytes]] = []

    def add_copy(self, to: str, size: int) -> None:
        """One copy of `size` bytes to the "device" or the "host"."""
        self._copies[to] += 1
        self._copied_bytes[to] += size

    def add_gemm(self, m: int, n: int, k: int, element: int) -> None:
        """A product of m rows, n columns and depth k, by columns, whose result has elements of so many bytes."""
        self.num_gemms += 1
        if len(self._gemms) < MAX_GEMMS:
            call = m, n, k, element
            self._gemms.append(self._known_gemms.setdefault(call, call))

    def add_kernel(self, name: str, counters: LaunchCounters, num_pointers: int) -> None:
        """What one launch of a kernel counted."""
        self.num_kernels += 1
        if len(self._kernels) < MAX_KERNELS:
            self._kernels.append((name, num_pointers, counters.packed(num_pointers)))

    def add_profile(self, profile: LaunchProfile) -> None:
        """What the instructions did in one launch of a kernel."""
        known = self._profiles.get(profile.name)
        if known is None or profile.cost > known.cost:
            self._profiles[profile.name] = profile

    def add_empty_kernel(self, name: str, grid: Sequence[int], block: Sequence[int], num_pointers: int) -> None:
        """A launch of a kernel that does nothing: it has threads, and that is all."""
        blocks = grid[0] * grid[1] * grid[2]
        threads = blocks * block[0] * block[1] * block[2]
        self.add_kernel(name, LaunchCounters(threads=threads, blocks=blocks), num_pointers)

    def report(self) -> dict[str, Any]:
        """All counts, as the control socket's `observed` gives them."""
        return {
            "launches": self.launches,
            "gemms": self.num_gemms,
            "gemm_calls": self._gemms,
            "kernels": self.num_kernels,
            "kernel_counts": [[name, LaunchCounters.unpacked(packed, n)] for name, n, packed in self._kernels],
            "profiles": [profile.report() for profile in self._profiles.values()],
            "copies": self._copies,
            "copied_bytes": self._copied_bytes,
            "device_copies": self.device_copies,
            "device_copied_bytes": self.device_copied_bytes,
            "memsets": self.memsets,
            "allocations": self.allocations,
        }
