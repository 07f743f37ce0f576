"""Judges whether a kernel shares out its work, without races: by counted launches and, on a GPU, by time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from grader.checking.api import Counters, InOut, Out, Worker, require
from grader.checks.support.launches import expect_launch, expect_outputs, expect_timed
from grader.observe.traffic import uncoalesced

SMALLEST_SHARE = 32
"""No thread makes more than one of this many accesses to global memory."""
SLOWEST = 20.0
"""On a GPU a launch takes at most this many times as long as a copy of as many bytes as its arrays have."""
MEASUREMENTS = 3


def expect_parallel(
    emulator: Worker, worker: Worker, op: str, few: Sequence[Any], many: Sequence[Any], *, planned: Sequence[str] = ()
) -> None:
    """Raise Failure unless a launch shares out its work; `few` and `many` are its arguments, of few and many rows.

    Every launch must also write what it must. `few` are so small that they are launched in several orders of threads
    and looked through for races and the like, also where the graded device is a GPU, and so large that there is work
    for several warps, tiles or loops. A line that is not coalesced is remarked on, unless it loads one of the arrays
    `planned`, of which the handout's plan says so.
    """
    outputs_of_few, counted_few = emulator.count(op, *few)
    outputs, counted = emulator.count(op, *many)
    if sentence := uncoalesced(counted.sites, planned):
        emulator.remark(f"{op}, {sentence}")
    expect_launch(emulator, op, *few)
    expect_outputs(op, outputs_of_few, tuple(few))
    expect_outputs(op, outputs, tuple(many))
    for launch in (counted_few, counted):
        _expect_shared_out(op, launch)
    noun = "thread" if counted.threads == 1 else "threads"
    require(
        counted.threads > counted_few.threads,
        f"{op} has {counted.threads:,} {noun} for many rows and {counted_few.threads:,} for few: "
        "its grid must grow with the rows.",
        "TOO_SLOW",
        figure=counted.threads,
        threshold=counted_few.threads + 1,
    )
    if worker is not emulator:  # it is a GPU
        _expect_fast(worker, op, many)


def _expect_shared_out(op: str, counted: Counters) -> None:
    require(
        SMALLEST_SHARE * counted.max_thread_accesses <= counted.accesses,
        f"One thread of {op} makes {counted.max_thread_accesses:,} of {counted.accesses:,} accesses to global memory; "
        f"at most 1/{SMALLEST_SHARE} is allowed: share the work among more threads.",
        "TOO_SLOW",
        figure=counted.max_thread_accesses,
        threshold=counted.accesses // SMALLEST_SHARE,
    )


def _expect_fast(worker: Worker, op: str, arguments: Sequence[Any]) -> None:
    size = sum(_size(argument) for argument in arguments)
    copy = min(worker.copy_time(size) for _ in range(MEASUREMENTS))
    seconds = min(expect_timed(worker, op, *arguments) for _ in range(MEASUREMENTS))
    require(
        seconds <= SLOWEST * copy,
        f"{op} takes {seconds * 1e6:.0f} µs, {seconds / copy:.0f} times as long as a copy of its {size:,} bytes; "
        f"at most {SLOWEST:g} times is allowed: share the work among more threads.",
        "TOO_SLOW",
        figure=seconds,
        threshold=SLOWEST * copy,
    )


def _size(argument: Any) -> int:
    """Bytes of an argument of a launch; 0 for a scalar."""
    if isinstance(argument, Out):
        return int(np.prod(argument.shape)) * np.dtype(argument.dtype).itemsize
    array = argument.array if isinstance(argument, InOut) else argument
    return array.nbytes if isinstance(array, np.ndarray) else 0
