"""What the device did during an observation, as a check sees it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from given.contracts import BF16
from numpy.typing import NDArray

from grader.failure import Failure
from grader.observe.counters import Counters, Profile
from grader.observe.findings import failure_of


class GemmCall(NamedTuple):
    """One matrix product as cuBLAS gets it, by columns: m rows, n columns, depth k.

    A linear layer of N outputs for M rows is the call m = N, n = M when its arrays are row-major. The bytes are those
    of each operand once: M·K, K·N and M·N elements.
    """

    m: int
    n: int
    k: int
    a_bytes: int
    b_bytes: int
    c_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of all three operands."""
        return self.a_bytes + self.b_bytes + self.c_bytes


class KernelCount(NamedTuple):
    """One launch of a kernel and what it counted."""

    name: str
    counters: Counters


@dataclass(frozen=True)
class ChangedRow:
    """A row of an array that a launch or a product wrote, before and after the emulator changed it."""

    name: str
    """The kernel, or "product"."""
    rows: int
    row: int
    before: NDArray[np.float32]
    """[width]"""
    after: NDArray[np.float32]

    @classmethod
    def of_report(
        cls, name: str, rows: int, row: int, width: int, element: int, before: str, after: str
    ) -> "ChangedRow":
        """From what the device told; `element` is the size in bytes of a bf16 or float32 number."""
        dtype = BF16 if element == BF16.itemsize else np.dtype(np.float32)
        values = (np.frombuffer(bytes.fromhex(digits), dtype).astype(np.float32) for digits in (before, after))
        return cls(name, rows, row, *values)


class DeviceActivity:
    """The work of the device from the begin of an observation to its end.

    Until the end nothing is known, and on a GPU nothing but `seconds`: an AttributeError says so.
    """

    seconds: float
    """On the parent's clock."""
    launches: int
    """Of kernels; products, copies and memsets are none."""
    launches_of: Mapping[str, int]
    """Launches by the kernel's name."""
    gemms: int
    gemm_calls: tuple[GemmCall, ...]
    """Every product, in order."""
    kernels: tuple[KernelCount, ...]
    """Every launch, in order; empty unless counted."""
    profiles: Mapping[str, Profile]
    """By the kernel's name, of the launch that moved the most; empty unless profiled."""
    copies: int
    """Between host and device, in either direction."""
    copies_to_device: int
    copies_to_host: int
    bytes_to_device: int
    bytes_to_host: int
    device_copies: int
    """From device memory to device memory."""
    device_copied_bytes: int
    memsets: int
    allocations: int
    peak_bytes: int
    """The most device memory that was in use at once, whoever allocated it and when."""
    outputs: int
    """Arrays that kernels of the course and products wrote, where one was to be changed."""
    changed: ChangedRow | None
    """The row that was changed; None where there was no such output."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} is known after an observation, on the emulator only")

    def complete(self, report: Mapping[str, Any]) -> None:
        """Take over the device's report; raises Failure when the device did too much to tell all of it.

        And when a checked kernel did what it must not.
        """
        if failure := failure_of(report["reports"]):
            raise failure
        for what, told, calls in (("products", "gemms", "gemm_calls"), ("launches", "kernels", "kernel_counts")):
            if report[told] > len(report[calls]):
                message = f"{report[told]:,} {what} were made on the device, where {len(report[calls]):,} are too many."
                raise Failure("RUNTIME_ERROR", message)
        self.launches_of = dict(report["launches"])
        self.launches = sum(self.launches_of.values())
        self.gemms = report["gemms"]
        self.gemm_calls = tuple(_gemm_call(*call) for call in report["gemm_calls"])
        self.kernels = tuple(KernelCount(name, Counters(**fields)) for name, fields in report["kernel_counts"])
        profiles = [Profile.of_report(fields) for fields in report["profiles"]]
        self.profiles = {profile.kernel: profile for profile in profiles}
        self.copies_to_device, self.copies_to_host = (report["copies"][to] for to in ("device", "host"))
        self.bytes_to_device, self.bytes_to_host = (report["copied_bytes"][to] for to in ("device", "host"))
        self.copies = self.copies_to_device + self.copies_to_host
        self.device_copies = report["device_copies"]
        self.device_copied_bytes = report["device_copied_bytes"]
        self.memsets = report["memsets"]
        self.allocations = report["allocations"]
        self.peak_bytes = report["peak"]
        if "outputs" in report:
            self.outputs = report["outputs"]
            self.changed = report["changed"] and ChangedRow.of_report(**report["changed"])


def _gemm_call(m: int, n: int, k: int, element: int) -> GemmCall:
    return GemmCall(m, n, k, m * k * BF16.itemsize, k * n * BF16.itemsize, m * n * element)
