"""How far the tolerances are from right and from wrong solutions: `python -m tests.graded.calibration [--seeds N]`.

For each check the largest error of the solutions as a multiple of the allowed one, over N seeds: at most 0.5 is wanted
of values and rows. The median error of a prompt's rows cannot be so small: it is 0.67 for arithmetic that rounds as
Hugging Face's bf16 does, and 0.4 to 0.65 for the contract's fewer roundings; at most 0.75 is wanted.
For each mutant that gives wrong values, how far it exceeds what is allowed in its check: at least 2 times is wanted.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from grader import KIT
from grader.checking import api as checking
from grader.device import choose_device
from grader.failure import Failure
from grader.grading.grading import grade
from grader.judge import compare
from grader.manifest import load_manifest
from grader.report.terminal import Terminal
from tests.graded.mutants import Mutant, load_mutants

LARGEST_RIGHT = 0.5
LARGEST_MEDIAN = 0.75
SMALLEST_WRONG = 2.0
EITHER = {"s02.6"}
"""Checks in which 0 is accepted beside the exact value: the error that is allowed is then the value itself."""

WRONG_VALUES = ("INCORRECT_VALUE", "NOT_FINITE")


@dataclass
class Ratios:
    """The largest error / allowed error that one check saw: of values and rows, of medians, of what was refused."""

    values: float = 0.0
    medians: float = 0.0
    refused: float = 0.0

    def include(self, other: "Ratios") -> None:
        self.values = max(self.values, other.values)
        self.medians = max(self.medians, other.medians)
        self.refused = max(self.refused, other.refused)


class Recorder:
    """Stands in for the grader's terminal and for its two judgements; `ratios` are those of the last grading."""

    def __init__(self) -> None:
        self.ratios: dict[str, Ratios] = defaultdict(Ratios)
        self._check = ""

    def check_started(self, check_id: str, title: str = "") -> None:
        self._check = check_id

    def check_finished(self, record: Any) -> None: ...

    def expect(self, got: Any, expected: compare.Expected, name: str = "out") -> None:
        def ratio() -> tuple[float, float]:
            return compare.worst_ratio(got, expected), 0.0

        self._judge(ratio, lambda: compare.expect(got, expected, name))

    def expect_rows(
        self,
        got: Any,
        reference: ArrayLike,
        bf16_reference: ArrayLike,
        name: str = "logits",
        dtype: DTypeLike = "float32",
    ) -> None:
        def ratio() -> tuple[float, float]:
            return compare.row_ratios(got, reference, bf16_reference)

        self._judge(ratio, lambda: compare.expect_rows(got, reference, bf16_reference, name, dtype))

    def _judge(self, ratio: Callable[[], tuple[float, float]], judge: Callable[[], None]) -> None:
        """Judge, and record by how much values are within, or beyond, what is allowed."""
        try:
            judge()
        except Failure as failure:
            if failure.verdict in WRONG_VALUES:
                self.ratios[self._check].include(Ratios(refused=max(np.nan_to_num(ratio(), nan=0.0, posinf=np.inf))))
            raise
        values, median = np.nan_to_num(ratio())  # 0 / 0: no error where none is allowed
        self.ratios[self._check].include(Ratios(values, median))


def install() -> Recorder:
    """Record the judgements of every check that is loaded from now on."""
    recorder = Recorder()
    checking.expect, checking.expect_rows = recorder.expect, recorder.expect_rows
    return recorder


def grade_once(recorder: Recorder, submission: Path, seed: int, checks: list[str]) -> dict[str, Ratios]:
    """The ratios of each check; raises RuntimeError when the grader itself fails."""
    recorder.ratios = defaultdict(Ratios)
    manifest = load_manifest()
    plan = manifest.select(checks=checks)
    outcome = grade(submission, manifest, plan, choose_device("cpu"), seed, cast(Terminal, recorder))
    if outcome.faults:
        raise RuntimeError("\n".join(outcome.faults))
    return recorder.ratios


def print_solutions(recorder: Recorder, seeds: int) -> list[str]:
    """Print the table of the solutions; returns the checks with too little room."""
    worst: dict[str, Ratios] = defaultdict(Ratios)
    for seed in range(seeds):
        for check, ratios in grade_once(recorder, KIT / "solutions", seed, []).items():
            worst[check].include(ratios)
    print(
        f"check    largest error / allowed over {seeds} seeds: values (≤ {LARGEST_RIGHT}), medians (≤ {LARGEST_MEDIAN})"
    )
    for check, ratios in worst.items():
        print(f"{check:8} {ratios.values:5.2f} {f'{ratios.medians:5.2f}' if ratios.medians else ''}".rstrip())
    return [
        check
        for check, ratios in worst.items()
        if round(ratios.values, 2) > LARGEST_RIGHT + (check in EITHER) * 0.5 or ratios.medians > LARGEST_MEDIAN
    ]


def print_mutants(recorder: Recorder) -> list[str]:
    """Print the table of the mutants that a comparison of values refuses; returns those that are too close to right."""
    close = []
    print(f"\nmutant                     check    error / allowed (≥ {SMALLEST_WRONG:g})")
    for mutant in load_mutants():
        ratio = _refused_by(recorder, mutant) if mutant.verdict in WRONG_VALUES else 0.0
        if ratio:
            print(f"{mutant.id:26} {mutant.check:8} {ratio:.3g}")
            close += [mutant.id] if ratio < SMALLEST_WRONG else []
    return close


def _refused_by(recorder: Recorder, mutant: Mutant) -> float:
    """How far the mutant is beyond what its check allows; 0 where the check judges something else than values."""
    with tempfile.TemporaryDirectory() as folder:
        submission = mutant.write(Path(folder) / "submission")
        return grade_once(recorder, submission, 0, [mutant.check])[mutant.check].refused


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.graded.calibration")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    recorder = install()
    tight, close = print_solutions(recorder, arguments.seeds), print_mutants(recorder)
    for name in tight:
        print(f"{name}: the solutions come too close to what is allowed")
    for name in close:
        print(f"{name}: the mutant exceeds what is allowed by less than {SMALLEST_WRONG:g} times")
    return 1 if tight or close else 0


if __name__ == "__main__":
    sys.exit(main())
