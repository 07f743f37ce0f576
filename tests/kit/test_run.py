"""Every test is in a suite, and a suite's failures are counted."""

from pathlib import Path

import pytest

from grader import KIT
from tests.kit.sizes import source_files
from tests.run import SUITES, Outcome, Suite, count, main, run

SUITE = Suite("toy", "quick", 60, ("tests/kit/test_run.py",))


def test_every_test_file_is_in_a_suite() -> None:
    paths = {path for suite in SUITES for path in suite.paths}
    assert [path for path in sorted(paths) if not (KIT / path).exists()] == []
    files = [Path(name) for name in source_files(".py") if Path(name).name.startswith("test_")]
    assert [str(file) for file in files if not paths.intersection(map(str, [file, *file.parents]))] == []


def test_names_are_unique() -> None:
    assert len({suite.name for suite in SUITES}) == len(SUITES)


@pytest.mark.parametrize(
    ("record", "code", "counts"),
    [
        (
            "<testcase/><testcase><failure/></testcase><testcase><skipped message='NOT RUN: x, y'/></testcase>",
            1,
            (1, 1),
        ),
        ("<testcase><error/></testcase><testcase/>", 1, (1, 1)),
        ("<testcase/>", 0, (1, 0)),
        ("<testcase/>", 2, (1, 1)),
        (None, 0, (0, 1)),
    ],
)
def test_counts(record: str | None, code: int, counts: tuple[int, int], tmp_path: Path) -> None:
    if record:
        (tmp_path / "junit.xml").write_text(f"<testsuite>{record}</testsuite>")
    outcome = Outcome(SUITE, 1.0, 1.0)
    count(outcome, tmp_path / "junit.xml", code)
    assert (outcome.passed, outcome.failed) == counts
    assert outcome.not_run <= {"NOT RUN: x, y"}


def test_a_suite_of_files_that_fail_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "test_broken.py"
    file.write_text("import nothing_of_this_name\n")
    outcome = run(Suite("toy", "quick", 60, (str(file),)), {})
    assert (outcome.passed, outcome.failed) == (0, 1)
    assert "nothing_of_this_name" in outcome.output


def test_it_says_what_it_leaves_out_and_what_did_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_skipped.py"
    file.write_text(
        "import pytest\n\ndef test_it():\n    pytest.skip('a tool, install it')\n\ndef test_other(): pass\n"
    )
    suites = (Suite("toy", "quick", 60, (str(file),)), Suite("long", "slow", 9, ("tests/kit",)))
    monkeypatch.setattr("tests.run.SUITES", suites)
    monkeypatch.setattr("sys.argv", ["tests.run"])
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        "left out, make test-all runs them: long", "NOT RUN: a tool, install it", "1 passed, 0 failed",
    ]  # fmt: skip
