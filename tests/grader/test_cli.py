"""`python -m grader grade` as it is called: exit codes, one sentence for bad input, never a traceback of ours."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import grader.grading.grading
import grader.grading.places
from grader import KIT
from grader.cli import main
from grader.device import has_compiled, probe_gpu
from grader.grading.plugin import collection_error
from grader.manifest import load_manifest
from tests.submissions import COPY, write_engine

ECHO = "def vector_add(x, y):\n    return x + 0\n"


def say(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and the one line on standard error."""
    code = main(["grade", *arguments])
    text = capsys.readouterr().err
    assert text.startswith("PagedLab: ")
    assert text.count("\n") == 1
    return code, text


def graded(submission: Path, *options: str) -> dict[str, Any]:
    """results.json of stage 0 with exit code and output."""
    record = submission / "results.json"
    command = [sys.executable, "-m", "grader", "grade", str(submission), "--stage", "0", "--device", "cpu"]
    result = subprocess.run(
        [*command, "--json", str(record), *options], cwd=KIT, capture_output=True, text=True, timeout=120
    )
    output = result.stdout + result.stderr
    assert "Traceback" not in output
    assert record.exists(), output
    return dict(json.loads(record.read_text()), exit_code=result.returncode, output=output)


def checks_of(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["id"]: check for stage in results["stages"] for check in stage["checks"]}


# Usage


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--stage", "99"], "There is no stage '99'; the stages are s00"),
        (["--stage", "x"], "There is no stage 'x'"),
        (["--check", "s00.99"], "There is no check 's00.99'; the checks of stage s00 are s00.1"),
        (["--check", "rmsnorm"], "There is no stage 'rmsnorm'"),
        (["--where"], "--where says where the listed checks stand: use it with --list."),
        (["--json", "absent/results.json"], "there is no folder"),
        (["--json", "grader"], "that is no file"),
        (["--model", "nope"], "there are no reference outputs of 'nope'; MODEL=smollm2-135m has them"),
        (["--model", "smollm2-135m", "--list", "--stage", "3"], "None of these checks runs on another model"),
    ],
)
def test_wrong_usage_is_2(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = say(capsys, *arguments)
    assert (code, told in text) == (2, True), text


@pytest.mark.parametrize("arguments", [["--seed", "x"], ["--seed", "-1"], ["--device", "tpu"], ["a", "b"]])
def test_arguments_that_argparse_refuses_are_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["grade", *arguments])
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "--seed" not in arguments or f"{arguments[1]!r} is no whole number from 0 to" in told


def test_a_gpu_that_is_not_there_is_4(capsys: pytest.CaptureFixture[str]) -> None:
    if probe_gpu()[0]:
        pytest.skip("this machine has a GPU")
    code, text = say(capsys, "--device", "gpu", "--stage", "0")
    assert (code, text.startswith("PagedLab: DEVICE=gpu, but PyCUDA ")) == (4, True), text


def test_no_compiler_is_4(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grader", "grade", "--stage", "0", "--device", "cpu"]
    result = subprocess.run(command, cwd=KIT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (result.returncode, "no C++ compiler was found" in result.stderr) == (4, True), result.stderr


def test_list_names_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grade", "--list", "--stage", "0"]) == 0
    output = capsys.readouterr().out
    for check in load_manifest().stage(0).checks:
        (line,) = [line for line in output.splitlines() if line.split()[0] == check.id]
        assert len(line.split()) > 3, "a check without a title"


def listed_places(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[tuple[str, str]]]:
    """(part, file:lines) for each line below each check of `grade --list --where`."""
    assert main(["grade", "--list", "--where", *arguments]) == 0
    found: dict[str, list[tuple[str, str]]] = {}
    places: list[tuple[str, str]] = []
    for line in capsys.readouterr().out.splitlines():
        if line.startswith(" " * 16):
            places.append((line[16:24].strip() or places[-1][0], line[26:]))
        elif line.startswith("  "):
            places = found[line.split()[0]] = []
    return found


def test_list_says_where_a_check_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = write_engine(tmp_path, 'NOT_IMPLEMENTED("s00.1");', vector_add='raise NotImplementedError("s00.2")\n' * 2)
    solutions = tmp_path / "solutions"
    (solutions / "kernels").mkdir(parents=True)
    (solutions / "kernels/vector_add.cu").write_text("\n    // s00.1: add\n")
    monkeypatch.setattr(grader.grading.places, "SOLUTIONS", solutions)
    places = listed_places(capsys, str(tmp_path), "--check", "s00.3", "s00.4")
    stubs = [("stub", f"{engine}/kernels/vector_add.cu:5"), ("stub", f"{engine}/vector_add.py:1, 2")]
    solution = ("solution", f"{solutions}/kernels/vector_add.cu:2")
    assert places["s00.3"][1:-1] == [stubs[0], solution]
    assert places["s00.4"][1:-1] == [*stubs, solution]


def test_list_names_a_header_of_the_solution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_engine(tmp_path, COPY)
    solutions = tmp_path / "solutions"
    (solutions / "kernels").mkdir(parents=True)
    (solutions / "kernels/own.cuh").write_text("\n// s11.1: the tiles\n")
    monkeypatch.setattr(grader.grading.places, "SOLUTIONS", solutions)
    places = listed_places(capsys, str(tmp_path), "--check", "s11.1")
    assert ("solution", f"{solutions}/kernels/own.cuh:2") in places["s11.1"]


def test_list_without_solutions_and_stubs_names_check_and_handout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_engine(tmp_path, COPY, vector_add=ECHO)
    monkeypatch.setattr(grader.grading.places, "SOLUTIONS", tmp_path / "absent")
    for places in listed_places(capsys, str(tmp_path), "--stage", "0").values():
        assert [part for part, _ in places] == ["check", "handout"]


def test_every_check_stands_where_list_says(capsys: pytest.CaptureFixture[str]) -> None:
    starts = {"check": '@check("{}")', "handout": "| {} |"}
    found = listed_places(capsys)
    assert list(found) == [check.id for check in load_manifest().checks]
    for check, places in found.items():
        for part, start in starts.items():
            (place,) = [place for name, place in places if name == part]
            file, _, line = place.rpartition(":")
            assert (KIT / file).read_text().split("\n")[int(line) - 1].startswith(start.format(check))
        assert not grader.grading.places.SOLUTIONS.is_dir() or "solution" in dict(places), check


# Submissions that cannot be graded


def test_malformed_submissions_are_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(folder: Path) -> str:
        code, text = say(capsys, str(folder), "--stage", "0", "--device", "cpu")
        assert code == 5
        return text

    assert "There is no folder" in told(tmp_path / "absent")
    assert "has no folder engine/" in told(tmp_path)
    engine = write_engine(tmp_path)
    (engine / "vector_add.py").symlink_to("/etc/hostname")
    assert "vector_add.py is a symbolic link" in told(tmp_path)
    (engine / "vector_add.py").unlink()
    (engine / "vector_add.py").mkdir()
    assert "vector_add.py" in told(tmp_path)
    (engine / "vector_add.py").rmdir()
    (engine / "vector_add.py").write_bytes(b"#" * (1 << 21))
    assert "vector_add.py is larger than 1 MiB" in told(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    (engine / "vector_add.py").unlink()
    (tmp_path / "fifo").rename(engine / "vector_add.py")
    assert "vector_add.py is no plain file" in told(tmp_path)


def test_only_listed_files_are_taken(tmp_path: Path) -> None:
    engine = write_engine(tmp_path, vector_add=ECHO)
    poison = "raise SystemExit(0)\n"
    for name in ("conftest.py", "sitecustomize.py", "numpy.py", "pycuda.py"):
        (engine / name).write_text(poison)
        (tmp_path / name).write_text(poison)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    verdicts = {id: check["verdict"] for id, check in checks_of(graded(tmp_path)).items()}
    assert verdicts["s00.1"] == verdicts["s00.2"] == "INCORRECT_VALUE"


# Submissions with a fault


def stubbed(folder: Path) -> Path:
    write_engine(folder, 'NOT_IMPLEMENTED("s00.1");', vector_add='raise NotImplementedError("s00.2")\n')
    return folder


def test_stubs_are_not_implemented_and_1(tmp_path: Path) -> None:
    results = graded(stubbed(tmp_path))
    assert results["exit_code"] == 1
    assert {check["verdict"] for check in checks_of(results).values()} == {"NOT_IMPLEMENTED"}
    assert "kernels/vector_add.cu:5" in results["output"]
    assert results["total"] == 0


def test_exit_zero_hides_failed_checks_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert graded(stubbed(tmp_path), "--exit-zero")["exit_code"] == 0
    assert say(capsys, str(tmp_path / "absent"), "--exit-zero", "--device", "cpu")[0] == 5


@pytest.mark.parametrize(
    ("body", "python", "first", "second"),
    [
        ("out[i] = ;", ECHO, "COMPILE_ERROR", "INCORRECT_VALUE"),
        (None, ECHO, "COMPILE_ERROR", "INCORRECT_VALUE"),
        (COPY, None, "INCORRECT_VALUE", "RUNTIME_ERROR"),
        (COPY, "def vector_add(x, y:\n", "INCORRECT_VALUE", "RUNTIME_ERROR"),
        (COPY, "def vector_add(x):\n    return x\n", "INCORRECT_VALUE", "RUNTIME_ERROR"),
        (COPY, "def vector_add(x, y):\n    pass\n", "INCORRECT_VALUE", "INCORRECT_DTYPE"),
        (COPY, "def vector_add(x, y):\n    return x[:0]\n", "INCORRECT_VALUE", "INCORRECT_SHAPE"),
        (COPY, "def vector_add(x, y):\n    return x * float('nan')\n", "INCORRECT_VALUE", "NOT_FINITE"),
        (COPY, "import os\nos._exit(0)\n", "INCORRECT_VALUE", "CRASHED"),
        (COPY, "import pytest\npytest.skip('x', allow_module_level=True)\n", "INCORRECT_VALUE", "RUNTIME_ERROR"),
    ],
)
def test_one_fault_costs_its_own_checks(
    body: str | None, python: str | None, first: str, second: str, tmp_path: Path
) -> None:
    engine = write_engine(tmp_path, body or COPY, vector_add=python or ECHO)
    if body is None:
        (engine / "kernels/vector_add.cu").unlink()
    if python is None:
        (engine / "vector_add.py").unlink()
    results = graded(tmp_path)
    verdicts = {id: check["verdict"] for id, check in checks_of(results).items()}
    assert (verdicts["s00.1"], verdicts["s00.2"], results["exit_code"]) == (first, second, 1)
    assert results["total"] == 0


def test_text_of_a_submission_is_shown_plainly(tmp_path: Path) -> None:
    python = "def vector_add(x, y):\n    raise ValueError('[bold]\\x1b[31m\\x07<b>\\u202eend')\n"
    results = graded(stubbed(tmp_path)) and graded(Path(write_engine(tmp_path / "other", vector_add=python)).parent)
    assert "[bold]<b>end" in results["output"]
    assert not {"\x1b", "\x07", "\u202e"} & set(results["output"])


def test_a_failure_tells_how_to_repeat_it(tmp_path: Path) -> None:
    folder = tmp_path / 'my $work "x"'
    write_engine(folder, vector_add=ECHO)
    check = checks_of(graded(folder, "--seed", "7"))["s00.1"]
    assert check["repro"] == f"make grade CHECK=s00.1 SUBMISSION='{folder}' DEVICE=cpu SEED=7"
    assert check["evidence"]["case"].startswith("vector_add(out[")
    shown = subprocess.run(
        f"{check['repro']} -s -o setup KIT='printf \"%s\\n\"'", shell=True, cwd=KIT, capture_output=True, text=True
    )
    assert shown.stdout.splitlines()[:4] == ["grade", str(folder), "--device", "cpu"], shown.stderr


# Faults of the grader's own


def test_a_fault_of_the_grader_is_3_and_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("grader.grading.command.grade", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, text = say(capsys, str(stubbed(tmp_path)), "--stage", "0", "--device", "cpu")
    (log,) = tmp_path.glob("pagedlab-fault-*.log")
    assert (code, str(log) in text, "planted" in log.read_text()) == (3, True, True)
    monkeypatch.setenv("PAGEDLAB_DEBUG", "1")
    main(["grade", str(tmp_path), "--stage", "0", "--device", "cpu"])
    assert "planted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("expected", "found", "told"),
    [
        (["a", "b"], ["a"], "b are in the manifest but not in grader/checks/"),
        (["a"], ["a", "c"], "c are in grader/checks/ but not in the manifest"),
        (["a"], ["a", "a"], "a are in grader/checks/ more than once"),
    ],
)
def test_checks_must_be_the_manifests(expected: Sequence[str], found: Sequence[str], told: str) -> None:
    assert told in str(collection_error(expected, found))
    assert collection_error(expected, expected) is None


def test_an_emulator_that_compiled_before_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grader.emulator.compiler.toolchain.CACHE", tmp_path)
    assert not has_compiled()
    (tmp_path / "module-0.so").touch()
    assert has_compiled()
