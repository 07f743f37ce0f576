"""No check that runs a kernel passes for kernels that compute nothing, be it only where a check counts or times."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given.contracts import CONTRACTS

from grader import KIT
from grader.checking.api import Counters, Failure, InOut, Out, Worker
from grader.manifest import load_manifest
from grader.worker.connection import Deadlines
from tests.graded.grading import grade, verdicts
from tests.graded.wrong_kernels import SCRATCH, returning, returning_at, storing_elsewhere, write_with_kernels

MANIFEST = load_manifest()
KERNEL_STAGES = [stage.id for stage in MANIFEST.stages if any(file.endswith(".cu") for file in stage.files)]
DRAWN = {"emulator", "worker", "rng", "expect_band"}
"""The fixtures of checks that only launch kernels."""


def checks_of(stage: str) -> Iterator[tuple[str, Callable[..., None]]]:
    for function in vars(import_module(f"grader.checks.{stage}")).values():
        if hasattr(function, "check_id"):
            yield function.check_id, function


COUNTING = [
    pytest.param(function, id=check_id)
    for stage in KERNEL_STAGES
    for check_id, function in checks_of(stage)
    if "emulator" in inspect.signature(function).parameters and DRAWN.issuperset(inspect.signature(function).parameters)
]


def passed(submission: Path) -> list[str]:
    """The ids of the checks that pass although they exercise a kernel."""
    results = grade(submission, "--device", "cpu", "--seed", "0")
    kernels = kernel_tasks()
    found = verdicts(results)
    return [check.id for check in MANIFEST.checks if kernels.intersection(check.needs) and found[check.id] == "PASSED"]


def kernel_tasks() -> set[str]:
    """The ids of the tasks whose markers stand in kernels."""
    sources = [file.read_text() for file in (KIT / "solutions/engine/kernels").glob("*.cu")]
    tasks = {task for check in MANIFEST.checks for task in check.needs}
    return {task for task in tasks if any(f"// {task}: " in source for source in sources)}


def test_kernels_that_return_at_once(tmp_path: Path) -> None:
    assert passed(write_with_kernels(tmp_path / "returning", returning)) == []


def test_kernels_that_leave_their_outputs_as_they_were(tmp_path: Path) -> None:
    assert passed(write_with_kernels(tmp_path / "elsewhere", storing_elsewhere, SCRATCH)) == []


class RecordingWorker(Worker):
    """Keeps the int arguments of the kernels whose launches are counted."""

    shapes: defaultdict[str, set[tuple[int, ...]]]

    def count(self, op: str, *arguments: Any) -> tuple[Any, Counters]:
        contract = CONTRACTS[op]
        dims: dict[str, int] = {}
        for array, argument in zip(contract.arrays, arguments, strict=False):
            shape: Any = argument.shape if isinstance(argument, Out) else getattr(argument, "array", argument).shape
            dims |= dict(zip(array.shape, shape, strict=True))
        dims |= {"B": dims["B+1"] - 1} if "B+1" in dims else {}
        self.shapes[op].add(tuple(int(dims[name]) for name in contract.ints))
        return super().count(op, *arguments)


def run(check: Callable[..., None], worker: Worker) -> None:
    fixtures = {
        "emulator": worker,
        "worker": worker,
        "rng": np.random.default_rng(0),
        "expect_band": lambda workload, band: None,
    }
    check(**{name: fixtures[name] for name in inspect.signature(check).parameters})


def new_worker(kind: type[Worker], submission: Path) -> Worker:
    deadlines = Deadlines()
    deadlines.start(600)
    return kind(submission / "engine", deadlines, emulated=True)


@pytest.mark.parametrize("check", COUNTING)
def test_kernels_that_return_only_where_they_are_counted(check: Callable[..., None], tmp_path: Path) -> None:
    recording = new_worker(RecordingWorker, KIT / "solutions")
    assert isinstance(recording, RecordingWorker)
    recording.shapes = defaultdict(set)
    try:
        run(check, recording)
    finally:
        recording.end()
    if not recording.shapes:
        pytest.skip("it counts no launch")
    wrong = new_worker(Worker, write_with_kernels(tmp_path / "wrong", returning_at(recording.shapes)))
    try:
        with pytest.raises(Failure):
            run(check, wrong)
    finally:
        wrong.end()


def test_an_update_of_an_array_is_counted_and_compared(tmp_path: Path) -> None:
    """residual_add that leaves every fourth element alone moves fewer bytes, and is wrong."""
    worker = new_worker(Worker, KIT / "solutions")
    x = np.ones((2, 8), CONTRACTS["residual_add"].outputs[0].dtype)
    outputs, counted = worker.count("residual_add", InOut(x), x)
    worker.end()
    assert (outputs == 2).all()
    assert counted.store_bytes == x.nbytes
