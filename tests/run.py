"""Run the kit's test suites: `python -m tests.run [--all] [SUITE ...]`.

Each suite is one command; the table at the end gives its result, its time and its budget on 2 cores. A suite whose
files are not there (a student release has no solutions to test) is left out. Exit code 1 when anything failed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

from tests.tools import NOT_RUN

KIT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Suite:
    name: str
    budget: float
    """Seconds on 2 cores."""
    paths: tuple[str, ...]
    """Test files and folders, from the kit's root."""
    slow: bool = False
    environment: dict[str, str] = field(default_factory=dict)


ALL_SEEDS = (
    "tests/kit/test_solutions.py",
    "tests/kit/test_alternatives.py",
    "tests/kit/test_mutants.py",
    "tests/kit/test_nvcc.py",
    "tests/kit/test_release.py",
)

ORACLES = tuple(f"tests/references/test_{name}.py" for name in ("oracle", "cache_oracle", "sampling"))

SUITES = (
    Suite("lint", 30, ("tests/kit/test_lint.py",)),
    Suite("unit tests", 90, ("tests/grader", "tests/test_handouts.py", *ORACLES)),
    Suite("models", 60, ("tests/model/test_gguf.py", "tests/model/test_fetch.py", "tests/model/test_talk.py")),
    Suite("launchers", 30, ("tests/given",)),
    Suite("engine", 60, ("tests/engine",)),
    Suite("server", 60, ("tests/serving",)),
    Suite("emulator", 120, ("tests/emulator",)),
    Suite("conformance", 60, ("tests/conformance",)),
    Suite("platforms", 65, ("tests/platforms",)),
    Suite("bugs", 60, ("tests/bugs", "tests/kit/test_planted_bugs.py", "tests/test_debugging_page.py")),
    Suite("solutions", 190, tuple(f"tests/kit/test_{name}.py" for name in ("solutions", "starter", "nvcc", "profile"))),
    Suite("alternatives", 150, ("tests/kit/test_alternatives.py",)),
    Suite("mutants", 150, ("tests/kit/test_mutants.py",)),
    Suite("attacks", 90, ("tests/kit/test_attacks.py", "tests/kit/test_cheats.py")),
    Suite("release", 45, ("tests/kit/test_release.py",)),
    Suite("setup", 60, ("tests/kit/test_setup.py", "tests/kit/test_readme.py")),
    Suite("real model", 120, ("tests/model/test_smollm2.py",), slow=True),
    Suite("references", 300, ("tests/references/test_transformers.py",), slow=True),
    Suite("all seeds", 1200, ALL_SEEDS, True, {"PAGEDLAB_ALL": "1"}),
    Suite("calibration", 600, ("tests/kit/test_calibration.py",), slow=True),
    Suite("gpu report", 5, ("tests/gpu",), slow=True),
)


@dataclass
class Outcome:
    suite: Suite
    passed: int
    failed: int
    seconds: float
    not_run: set[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="names of suites; all quick ones when none is given")
    parser.add_argument("--all", action="store_true", help="the slow suites too")
    arguments = parser.parse_args()
    unknown = set(arguments.suites) - {suite.name for suite in SUITES}
    if unknown:
        parser.error(f"unknown suite {', '.join(sorted(unknown))}; known are {', '.join(s.name for s in SUITES)}")
    outcomes = [run(suite) for suite in SUITES if is_chosen(suite, arguments)]
    print_table(outcomes)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def is_chosen(suite: Suite, arguments: argparse.Namespace) -> bool:
    if not any((KIT / path).exists() for path in suite.paths):
        return False
    return suite.name in arguments.suites if arguments.suites else arguments.all or not suite.slow


def run(suite: Suite) -> Outcome:
    """Run one suite's tests in a pytest of its own and count them from its JUnit record."""
    print(f"\n== {suite.name}", flush=True)
    paths = [path for path in suite.paths if (KIT / path).exists()]
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
        command += [f"--junitxml={record}", *paths]
        environment = os.environ | suite.environment | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        start = time.monotonic()
        code = subprocess.run(command, cwd=KIT, env=environment).returncode
        return read_record(suite, record, code, time.monotonic() - start)


def read_record(suite: Suite, record: Path, code: int, seconds: float) -> Outcome:
    if not record.exists():
        return Outcome(suite, 0, 1, seconds, set())
    cases = list(ElementTree.parse(record).iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    reasons = [skip.get("message") or "" for case in cases for skip in case.iter("skipped")]
    if code and not failed:
        failed = 1
    return Outcome(suite, len(cases) - failed - len(reasons), failed, seconds, set(reasons))


def print_table(outcomes: list[Outcome]) -> None:
    print("\nsuite           passed  failed   seconds  budget")
    for outcome in outcomes:
        over = "  over its budget" if outcome.seconds > outcome.suite.budget else ""
        print(
            f"{outcome.suite.name:<15} {outcome.passed:6d} {outcome.failed:7d} {outcome.seconds:9.1f} "
            f"{outcome.suite.budget:7.0f}{over}"
        )
    for reason in sorted(reason for outcome in outcomes for reason in outcome.not_run):
        print(reason if reason.startswith(NOT_RUN) else f"{NOT_RUN}{reason}")
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    print(f"{passed} passed, {failed} failed")


if __name__ == "__main__":
    sys.exit(main())
