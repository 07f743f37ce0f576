"""A grading of checks of our own: what counts as passed, what is not tried, what is a fault of the grader."""

import itertools
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import grader.grading.grading
from grader.device import GradedDevice
from grader.grading.grading import Outcome, grade
from grader.manifest import ManifestError, parse_manifest
from grader.oracle.references import load_references
from tests.submissions import COPY, write_engine

HEAD = """
import numpy as np
import pytest
from grader.checking.api import *

X = np.arange(5, dtype=np.float32)
"""
ECHO = "def echo(x):\n    return x\ndef wrong(x):\n    return x + 1\n"
PASSES = "expect(worker.launch('vector_add', Out(5, np.float32), X, X), Expected(X, 0, np.float32))"
FAILS = "expect(worker.call('vector_add.wrong', X), Expected(X, 0, np.float32))"
UNIQUE = itertools.count()
"""Parts of package names: the checks of all tests are modules of one process."""


class Silence:
    def check_started(self, check_id: str, title: str = "") -> None: ...

    def check_finished(self, record: Any) -> None: ...


class Course:
    """Stages s00 to s02, each of checks whose bodies are given."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.checks = folder / f"checks_{next(UNIQUE)}"
        self.checks.mkdir()
        (self.checks / "__init__.py").touch()
        monkeypatch.setattr(grader.grading.grading, "CHECKS", self.checks)
        self.stages: list[dict[str, Any]] = []

    def stage(self, bodies: list[str], requires: tuple[str, ...] = (), **options: Any) -> None:
        """The next stage; the first check is its task, which the others need, and those of the required stages."""
        stage_id = f"s{len(self.stages):02}"
        runs = [f"{stage_id}.1", *(f"{other}.1" for other in requires)]
        checks = [{"id": f"{stage_id}.{i}", "points": 1, "runs": runs, **options} for i in range(1, len(bodies) + 1)]
        functions = [
            f'@check("{check["id"]}")\ndef f{i}(worker, emulator, rng):\n    """Check {i}."""\n    {body}\n'
            for i, (check, body) in enumerate(zip(checks, bodies, strict=True))
        ]
        self.file = self.checks / f"{stage_id}.py"
        self.file.write_text(HEAD + "\n".join(reversed(functions)))
        files = ["kernels/vector_add.cu", "vector_add.py"]
        self.stages.append(
            {"id": stage_id, "title": "T", "handout": f"{stage_id[1:]}-x.md", "points": len(bodies),
             "files": files, "task": [{"id": f"{stage_id}.1"}], "check": checks}
        )  # fmt: skip

    def grade(self, body: str = COPY, python: str = ECHO, checks: tuple[str, ...] = ()) -> Outcome:
        shutil.rmtree(self.folder / "submission", ignore_errors=True)
        manifest = parse_manifest({"deadline": 20, "stage": self.stages})
        submission = write_engine(self.folder / "submission", body, vector_add=python).parent
        device = GradedDevice("cpu", "emulator", "cpu")
        return grade(submission, manifest, manifest.select(checks=checks), device, 3, Silence())  # type: ignore[arg-type]


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    return Course(tmp_path, monkeypatch)


def told(outcome: Outcome) -> dict[str, str]:
    return {c["id"]: f"{c['verdict']} {c['message']}" for stage in outcome.results["stages"] for c in stage["checks"]}


def test_only_a_check_that_ends_well_has_passed(course: Course) -> None:
    course.stage(
        [PASSES, FAILS, "pytest.skip('x')", "pytest.xfail('x')", "assert 0", "1 / 0", "raise SystemExit", "pass"]
    )
    outcome = course.grade()
    verdicts = [text.split()[0] for text in told(outcome).values()]
    assert verdicts == ["PASSED", "INCORRECT_VALUE", *["NOT_RUN"] * 5, "PASSED"]
    assert outcome.results["total"] == 2
    assert len(outcome.faults) == 5
    assert "ZeroDivisionError" in outcome.faults[3]


def test_stages_that_build_on_nothing_are_skipped(course: Course) -> None:
    course.stage([FAILS, FAILS])
    course.stage([PASSES], requires=("s00",))
    course.stage([PASSES])
    assert [text.partition(":")[0] for text in list(told(course.grade()).values())[2:]] == [
        "SKIPPED No check of stage s00 passes, and this one calls it",
        "PASSED ",
    ]
    assert told(course.grade(checks=("s01.1",))) == {"s01.1": "PASSED "}, "s00 was not graded: nothing is known of it"


def test_one_passing_check_is_enough_to_go_on(course: Course) -> None:
    course.stage([FAILS, PASSES])
    course.stage([PASSES], requires=("s00",))
    assert told(course.grade())["s01.1"] == "PASSED "


def test_needs_that_are_stubs_are_not_implemented(course: Course) -> None:
    course.stage([PASSES])
    course.stage([PASSES], requires=("s00",))
    course.stage([PASSES])
    outcome = course.grade('NOT_IMPLEMENTED("s00.1");')
    assert list(told(outcome).values())[:2] == ["NOT_IMPLEMENTED To do: s00.1."] * 2
    assert outcome.results["stages"][1]["checks"][0]["evidence"]["stubs"] == [
        {"id": "s00.1", "file": "kernels/vector_add.cu", "line": 5}
    ]


def test_what_passes_without_kernels_fails(course: Course) -> None:
    course.stage([PASSES, "expect(worker.call('vector_add.echo', X), Expected(X, 0, np.float32))"])
    assert set(told(course.grade()).values()) == {"PASSED "}
    for check in course.stages[0]["check"]:
        check["empty_repeat"] = True
    first, second = told(course.grade()).values()
    assert first == "PASSED "
    assert second.startswith("RUNTIME_ERROR The answer does not come from your kernels")


def test_draws_do_not_depend_on_what_else_runs(course: Course) -> None:
    course.stage(["raise Failure('TOO_SLOW', str(rng.random()))"] * 2)
    whole = told(course.grade())
    assert told(course.grade(checks=("s00.2",)))["s00.2"] == whole["s00.2"] != whole["s00.1"]


def test_what_was_printed_is_told_and_of_a_failure_its_call(course: Course) -> None:
    course.stage(
        ["worker.call('vector_add.say'); " + PASSES, "worker.call('vector_add.say'); raise Failure('TOO_SLOW', '')"]
    )
    outcome = course.grade(python="def say():\n    print('hello')\n")
    passed, failed = (result["evidence"] for result in outcome.results["stages"][0]["checks"])
    assert passed["log"] == "hello"
    assert (failed["case"], failed["log"]) == ("vector_add.say()", "hello")


def test_a_broken_reference_file_is_named(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grader.grading.plugin.load_model", lambda name: load_references(course.folder))
    course.stage(["pass", "pass"])
    course.file.write_text(course.file.read_text().replace("f1(worker, emulator, rng)", "f1(tiny)"))
    outcome = course.grade()
    verdicts = told(outcome)
    assert verdicts["s00.1"] == "PASSED "
    assert re.match(r"NOT_RUN .*manifest.json cannot be read \(No such file", verdicts["s00.2"])
    assert len(outcome.faults) == 1
    assert "Traceback" not in outcome.faults[0]


def test_checks_and_manifest_must_agree(course: Course) -> None:
    course.stage(["pass"])
    course.file.write_text(course.file.read_text().replace("s00.1", "s00.2"))
    with pytest.raises(
        ManifestError, match=re.escape("s00.1 are in the manifest but not in grader/checks/; s00.2 are")
    ):
        course.grade()
    course.file.unlink()
    with pytest.raises(ManifestError, match="Stage s00 has no file"):
        course.grade()


def test_a_check_file_that_cannot_be_imported_is_a_fault(course: Course) -> None:
    course.stage(["pass"])
    course.file.write_text("import absent_module")
    outcome = course.grade()
    assert "absent_module" in "".join(outcome.faults)
    assert told(outcome)["s00.1"].startswith("NOT_RUN")
