"""Run the kit's test suites: `python -m tests.run [--ci | --all] [SUITE ...]`.

Without options it runs what a newcomer waits for, `--ci` what continuous integration runs after that, `--all` these and
the slow ones. Two suites run side by side, each in a pytest of its own; the table at the end has the result, the time
and the budget of each. A suite whose files are not there (a student release has no solutions to test) is left out.
Exit code 1 when anything failed, 130 when it was interrupted.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.tools import NOT_RUN

KIT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SIDE_BY_SIDE = 2

Speed = Literal["quick", "ci", "slow"]


@dataclass(frozen=True)
class Suite:
    name: str
    speed: Speed
    budget: float
    """Seconds on 2 cores, beside another suite."""
    paths: tuple[str, ...]
    """Test files and folders, from the kit's root."""
    environment: dict[str, str] = field(default_factory=dict)
    shows_output: bool = False
    """Print what its tests print also when they pass."""

    def existing_paths(self) -> list[str]:
        return [path for path in self.paths if (KIT / path).exists()]


def modules(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


EVERYTHING = {"PAGEDLAB_ALL": "1"}
UNIT_TESTS = (
    *(f"tests/{name}" for name in ("grader", "ipc", "judge", "observe", "worker", "checking", "traces", "throughput")),
    *(f"tests/{name}" for name in ("grading", "report", "profile")),
    *modules("oracle", "oracle", "cache_operations", "sampling", "scripted", "streams", "suspects"),
    "tests/test_handouts.py",
    "tests/handouts",
    *modules("gpu", "records"),
)

ALL_SEEDS = (*modules("graded", "solutions", "alternatives"), *modules("kit", "nvcc"), *modules("release", "release"))

SUITES = (
    Suite("lint", "quick", 30, modules("kit", "lint", "size", "paths", "readme", "run")),
    Suite("unit tests", "quick", 120, UNIT_TESTS),
    Suite("launchers", "quick", 15, ("tests/given",)),
    Suite("engine", "quick", 30, ("tests/engine",)),
    Suite("emulator", "quick", 150, ("tests/emulator",)),
    Suite("solutions", "quick", 120, (*modules("graded", "solutions"), *modules("release", "starter"))),
    Suite(
        "mutants", "quick", 240, (*modules("graded", "mutants"), *modules("campaigns", "campaigns", "random_mutants"))
    ),
    Suite("attacks", "quick", 120, modules("graded", "attacks", "cheats", "messages")),
    Suite("nothing computed", "ci", 300, modules("graded", "nothing_computed", "own_answers")),
    Suite("conformance", "ci", 90, ("tests/conformance",)),
    Suite("bugs", "ci", 90, ("tests/bugs", *modules("graded", "planted_bugs"), "tests/test_debugging_page.py")),
    Suite("profile", "ci", 15, modules("graded", "profile")),
    Suite("models", "ci", 30, modules("model", "gguf", "fetch")),
    Suite("server", "ci", 90, ("tests/serving",)),
    Suite("platforms", "ci", 120, ("tests/platforms",)),
    Suite("nvcc", "ci", 180, modules("kit", "nvcc")),
    Suite("alternatives", "ci", 240, modules("graded", "alternatives")),
    Suite("all mutants", "ci", 1200, modules("graded", "mutants"), EVERYTHING),
    Suite("release", "ci", 90, modules("release", "release")),
    Suite("setup", "ci", 60, modules("kit", "setup")),
    Suite("real model", "slow", 180, ("tests/model/test_smollm2.py",)),
    Suite("references", "slow", 450, ("tests/oracle/test_transformers.py",)),
    Suite("all seeds", "slow", 1500, ALL_SEEDS, EVERYTHING),
    Suite("calibration", "slow", 900, modules("graded", "calibration"), shows_output=True),
    Suite("gpu report", "slow", 15, ("tests/gpu",)),
)


@dataclass
class Outcome:
    suite: Suite
    seconds: float
    """By the clock."""
    cpu_seconds: float
    """Of the suite's processes on all cores; another process on the machine hardly changes it."""
    passed: int = 0
    failed: int = 0
    not_run: frozenset[str] = frozenset()
    output: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="names of suites, in place of --ci or --all")
    parser.add_argument("--ci", action="store_true", help="what continuous integration runs after the quick suites")
    parser.add_argument("--all", action="store_true", help="all suites")
    options = parser.parse_args()
    unknown = set(options.suites) - {suite.name for suite in SUITES}
    if unknown:
        parser.error(f"unknown suite {', '.join(sorted(unknown))}; known are {', '.join(s.name for s in SUITES)}")
    here = [suite for suite in SUITES if suite.existing_paths()]
    chosen = [suite for suite in here if is_chosen(suite, options)]
    start = time.monotonic()
    outcomes = list(run_all(chosen))
    print_table(sorted(outcomes, key=lambda outcome: chosen.index(outcome.suite)))
    print_summary(outcomes, [] if options.suites else [s for s in here if s not in chosen], time.monotonic() - start)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def is_chosen(suite: Suite, options: argparse.Namespace) -> bool:
    if options.suites:
        return suite.name in options.suites
    return options.all or suite.speed == ("ci" if options.ci else "quick")


def run_all(suites: list[Suite]) -> Iterator[Outcome]:
    """Outcomes as they come; the longest suites begin first, so that the last two end together."""
    environment = {"PAGEDLAB_GRADINGS": "1" if len(suites) > 1 else str(SIDE_BY_SIDE)}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        ordered = sorted(suites, key=lambda suite: -suite.budget)
        running = [pool.submit(run, suite, environment) for suite in ordered]
        try:
            for future in as_completed(running):
                outcome = future.result()
                print_outcome(outcome)
                yield outcome
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def run(suite: Suite, environment: dict[str, str]) -> Outcome:
    """Run one suite's tests in a pytest of its own and count them from its JUnit record."""
    with tempfile.TemporaryDirectory() as folder:
        record, output = Path(folder) / "junit.xml", Path(folder) / "output.txt"
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
        command += [f"--junitxml={record}", *(["-rP"] if suite.shows_output else []), *suite.existing_paths()]
        environment = os.environ | environment | suite.environment | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        start = time.monotonic()
        with output.open("wb") as file:
            process = subprocess.Popen(command, cwd=KIT, env=environment, stdout=file, stderr=subprocess.STDOUT)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        outcome = Outcome(suite, time.monotonic() - start, used.ru_utime + used.ru_stime)
        count(outcome, record, process.returncode)
        outcome.output = output.read_text(encoding="utf-8", errors="replace")
        return outcome


def count(outcome: Outcome, record: Path, code: int) -> None:
    """Count passed, failed and skipped tests; a pytest that failed without a failed test is a failure."""
    if not record.exists():
        outcome.failed = 1
        return
    cases = list(ElementTree.parse(record).iter("testcase"))
    reasons = [skip.get("message") or "" for case in cases for skip in case.iter("skipped")]
    outcome.failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    outcome.passed = len(cases) - outcome.failed - len(reasons)
    outcome.not_run = frozenset(reasons)
    if code and not outcome.failed:
        outcome.failed = 1


def print_outcome(outcome: Outcome) -> None:
    """One line when a suite has ended, and its output when something failed."""
    if outcome.failed or outcome.suite.shows_output:
        print(f"\n{outcome.output}")
    print(
        f"== {outcome.suite.name}: {outcome.passed} passed, {outcome.failed} failed, {outcome.seconds:.0f} s",
        flush=True,
    )


def print_table(outcomes: list[Outcome]) -> None:
    print("\nsuite           passed  failed   seconds  of CPUs  budget")
    for outcome in outcomes:
        over = "  over its budget" if outcome.seconds > outcome.suite.budget else ""
        print(
            f"{outcome.suite.name:<15} {outcome.passed:6d} {outcome.failed:7d} {outcome.seconds:9.1f} "
            f"{outcome.cpu_seconds:8.1f} {outcome.suite.budget:7.0f}{over}"
        )


def print_summary(outcomes: list[Outcome], left_out: list[Suite], seconds: float) -> None:
    """The time of all, what was left out or could not run, and the closing line."""
    print(f"{'all':<15} {'':14} {seconds:9.1f} {sum(outcome.cpu_seconds for outcome in outcomes):8.1f}")
    for speed, command in (("ci", "python -m tests.run --ci"), ("slow", "make test-all")):
        names = [suite.name for suite in left_out if suite.speed == speed]
        if names:
            print(f"left out, {command} runs them: {', '.join(names)}")
    for reason in sorted({reason for outcome in outcomes for reason in outcome.not_run}):
        print(reason if reason.startswith(NOT_RUN) else f"{NOT_RUN}{reason}")
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    print(f"{passed} passed, {failed} failed")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
