"""Runs the cases in a process of their own, on the emulator or on a GPU, and reads what came out."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grader import KIT
from grader.emulator.launcher import start_device
from tests.conformance.cases import ALONE, CASES
from tests.conformance.numbers.numerics import FORMULAS

CLIENT = KIT / "grader/emulator/client"
SECONDS = 300


@dataclass(frozen=True)
class Outcome:
    results: dict[str, list[np.ndarray]]
    """By "module:kernel" the arrays among its arguments, of the cases that ran."""
    failure: str
    """What went wrong, or nothing."""
    printed: str
    """By the kernels."""
    observed: dict[str, Any]
    """Of the emulator: what it counted and reported."""


def run_emulated(names: Sequence[str] = (), *, order_seed: int = 0, observe: bool = False) -> Outcome:
    """Run cases (all when none is named) on the emulator; with `observe` counted and checked."""
    device = start_device(cores=2)
    try:
        device.control.set_mode(order_seed=order_seed)
        if observe:
            device.control.observe(counted=True, checked=True)
        environment = device.environment() | {"PYTHONPATH": str(CLIENT)}
        results, failure, printed = _run(names, environment, device.pass_fds)
        observed = {} if failure else device.control.observed()
        return Outcome(results, failure, printed + device.printed(), observed)
    finally:
        device.close()


def run_on_gpu(names: Sequence[str] = ()) -> Outcome:
    """Run cases (all when none is named) with the genuine PyCUDA."""
    results, failure, printed = _run(names, {}, ())
    return Outcome(results, failure, printed, {})


def _run(
    names: Sequence[str], environment: dict[str, str], descriptors: Sequence[int]
) -> tuple[dict[str, list[np.ndarray]], str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.npz"
        process = subprocess.run(
            [sys.executable, "-B", "-m", "tests.conformance.program", str(path), *names],
            cwd=KIT,
            env=os.environ | environment,
            pass_fds=descriptors,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        failure = process.stderr if process.returncode else ""
        if not path.exists():
            return {}, failure, process.stdout
        with np.load(path) as saved:
            return _by_case(dict(saved), names), failure, process.stdout


def _by_case(saved: dict[str, np.ndarray], names: Sequence[str]) -> dict[str, list[np.ndarray]]:
    results = {}
    for case in [case for case in [*CASES, *ALONE, *FORMULAS] if case.name in names] if names else CASES:
        given = case.launch().results
        if any(f"{case.name}/{i}" not in saved for i in range(len(given))):
            continue
        found = [saved[f"{case.name}/{i}"] for i in range(len(given))]
        results[case.name] = [
            array.view(wanted.dtype).reshape(wanted.shape) for array, wanted in zip(found, given, strict=True)
        ]
    return results
