"""Judges times on a GPU against what the kit's own engine reaches there (grader/throughput/thresholds.toml).

A submission must reach a part of it, its *band*: 0.5 for all points of a stage's throughput, 0.25 for half of them. On
a GPU that nobody has measured, the kit's rate is estimated: the roofline rate of this GPU, from its copy bandwidth and
the bytes that must be read, times the least roofline fraction among the measured GPUs, times UNKNOWN_GPU.
"""

import tomllib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from numpy.random import Generator

from grader import UsageError
from grader.device import probe_gpu
from grader.failure import Failure
from grader.oracle.llama_shape import bench_model
from grader.oracle.references import load_oracle
from grader.throughput.workloads import WORKLOADS, Timed, expect_part
from grader.worker.client import Worker

THRESHOLDS = Path(__file__).with_name("thresholds.toml")
UNKNOWN_GPU = 0.5
"""Hosts, clocks and caches differ, too: what an unmeasured GPU is asked for beside the measured ones."""
COPIED = 1 << 28
"""Bytes of the copy that gives the bandwidth: more than any GPU's caches hold."""
COPIES = 3
NOTE = "time"
"""The key of a check's evidence that says why, or how, its time part was judged."""


@dataclass(frozen=True)
class Figure:
    """What the kit's engine reached in one workload on one GPU."""

    tokens_per_second: float
    roofline: float


Figures = Mapping[str, Mapping[str, Figure]]
"""{GPU: {workload: figure}}."""


def load_figures(path: Path = THRESHOLDS) -> Figures:
    """Read thresholds.toml. Raises UsageError, naming the entry, for a file that is not of its form."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    gpus = content.pop("gpu", {})
    if content or not isinstance(gpus, dict):
        raise UsageError(f"{path}: only tables [gpu.NAME.WORKLOAD] may stand there.")
    return {gpu: _read_gpu(path, gpu, entries) for gpu, entries in gpus.items()}


def _read_gpu(path: Path, gpu: str, entries: Any) -> dict[str, Figure]:
    figures = {}
    for name, entry in entries.items() if isinstance(entries, dict) else [("", entries)]:
        numbers = entry if isinstance(entry, dict) and set(entry) == {"tokens_per_second", "roofline"} else {}
        if not numbers or any(type(number) is not float or not number > 0 for number in numbers.values()):
            raise UsageError(f'{path}: [gpu."{gpu}".{name}] needs tokens_per_second and roofline, positive decimals.')
        figures[name] = Figure(**numbers)
    return figures


@cache
def gpu_name() -> str:
    """The GPU's name as CUDA tells it; empty without one."""
    return probe_gpu()[0]


def roofline_seconds(worker: Worker, size: int) -> float:
    """The time in which this GPU's copy bandwidth, bytes read and bytes written, moves `size` bytes."""
    copy = min(worker.copy_time(COPIED) for _ in range(COPIES))
    return size * copy / (2 * COPIED)


def wanted_rate(figures: Figures, gpu: str, workload: str, roofline_rate: float) -> tuple[float, str] | None:
    """(tokens a second that the kit's engine reaches, where that comes from); None when no GPU has been measured."""
    if workload in figures.get(gpu, {}):
        return figures[gpu][workload].tokens_per_second, f"measured on {gpu}"
    known = {name: entries[workload].roofline for name, entries in figures.items() if workload in entries}
    if not known:
        return None
    least = min(known, key=lambda name: known[name])
    told = f"estimated from {least}, since {gpu} has not been measured"
    return UNKNOWN_GPU * known[least] * roofline_rate, told


def expect_time(worker: Worker, workload: str, timed: Timed, band: float, notes: MutableMapping[str, Any]) -> None:
    """Raise Failure TOO_SLOW unless the rate reaches `band` of the kit's; for a worker on a GPU.

    `notes` is the check's evidence: it says there with what the rate was compared, or that nothing was measured.
    """
    floor = roofline_seconds(worker, timed.bytes)
    wanted = wanted_rate(load_figures(), gpu_name(), workload, timed.tokens / floor)
    if wanted is None:
        notes[NOTE] = "not judged: thresholds.toml has no figures yet (the instructor: make calibrate)"
        return
    rate, source = wanted
    told = f"{timed.rate:,.0f} tokens a second, {floor / timed.seconds:.0%} of what the memory bandwidth allows"
    notes[NOTE] = f"{told}; the kit's engine: {rate:,.0f}, {source}"
    if timed.rate < band * rate:
        raise Failure(
            "TOO_SLOW",
            f"{told}; at least {band * rate:,.0f} are needed, {band:g} of the kit's engine's {rate:,.0f} ({source}). "
            "Look for copies, synchronisation and small launches in each step first.",
            {"figure": timed.rate, "threshold": band * rate},
        )


class TimedRuns:
    """The timed runs of one grading: a model is written when the first needs it, and each workload runs once."""

    def __init__(self, folder: Path) -> None:
        """`folder` exists and is empty."""
        self._folder = folder
        self._is_written = False
        self._timed: dict[str, Timed] = {}

    def expect(
        self, worker: Worker, workload: str, band: float, notes: MutableMapping[str, Any], rng: Generator
    ) -> None:
        """`expect_time` of a workload, of whose answers also a drawn part is held against the oracle."""
        if not self._is_written:
            bench_model(self._folder)
            self._is_written = True
        if workload not in self._timed:
            timed = WORKLOADS[workload](worker, self._folder, rng)
            if timed.answers:
                expect_part(load_oracle(self._folder), timed, rng)
            self._timed[workload] = timed
        expect_time(worker, workload, self._timed[workload], band, notes)


def without_gpu(notes: MutableMapping[str, Any]) -> None:
    """Note that the time part of a check has not been run."""
    notes[NOTE] = "not run: times are judged on a GPU only"
