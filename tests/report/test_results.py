"""results.json keeps to schema 1, whatever a submission sends."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader.emulator.compiler.headers import GIVEN
from grader.manifest import Check, Stage
from grader.observe.findings import MAX_KEPT, failure_of
from grader.report.results import LARGEST_EVIDENCE, Record, build_results, stage_status, write_results
from grader.text import clean, clean_line
from grader.worker.connection import Connection, Deadlines
from grader.worker.student_errors import StudentError, source_lines, student_error

FIRST = Check("s03.1", 1.0, ("s03.1",), 20.0)
SECOND = Check("s03.2", 1.5, ("s03.2",), 20.0)
STAGE = Stage("s03", "RMSNorm", "03-rmsnorm.md", 2.5, ("kernels/rmsnorm.cu",), (FIRST, SECOND))


def results_of(*records: Record) -> dict[str, Any]:
    return build_results(
        [(STAGE, STAGE.checks)],
        records,
        kit="0.1.0",
        submission="starter",
        device={"kind": "cpu", "name": "emulator"},
        confinement="none",
        seed=7,
    )


def test_the_document_has_the_fields_of_schema_1_in_order() -> None:
    passed = Record("s03.1", "a title", 1.0, 1.0, "PASSED", seconds=0.12345, repro="make grade CHECK=s03.1")
    failed = Record("s03.2", "another", 0.0, 1.5, "INCORRECT_VALUE", "2 of 3 values are wrong.", evidence={"wrong": 2})
    document = results_of(failed, passed)
    assert list(document) == [
        "schema", "kit", "submission", "device", "confinement", "seed", "mode", "model", "total", "max", "stages",
    ]  # fmt: skip
    assert (document["schema"], document["mode"], document["total"], document["max"]) == (1, "public", 1.0, 2.5)
    (stage,) = document["stages"]
    assert list(stage) == ["id", "title", "points", "max", "status", "checks"]
    assert (stage["points"], stage["max"], stage["status"]) == (1.0, 2.5, "FAILED")
    assert stage["checks"][0] == {
        "id": "s03.1", "title": "a title", "points": 1.0, "max": 1.0, "verdict": "PASSED", "message": "",
        "seconds": 0.123, "repro": "make grade CHECK=s03.1", "evidence": {},
    }  # fmt: skip
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_a_check_without_a_record_scores_nothing_and_counts() -> None:
    document = results_of(Record("s03.1", "", 1.0, 1.0, "PASSED"))
    assert document["stages"][0]["checks"][1]["verdict"] == "NOT_RUN"
    assert (document["total"], document["max"], document["stages"][0]["status"]) == (1.0, 2.5, "INCOMPLETE")


@pytest.mark.parametrize(
    ("verdict", "points", "most"), [("FINE", 0, 1), ("PASSED", 2, 1), ("PASSED", -1, 1), ("TIMEOUT", 1, 1)]
)
def test_impossible_records_are_refused(verdict: str, points: float, most: float) -> None:
    with pytest.raises(ValueError, match=r"s03\.1"):
        Record("s03.1", "", points, most, verdict)


def test_the_maximum_is_the_manifests() -> None:
    with pytest.raises(ValueError, match=r"worth 1\.0 points"):
        results_of(Record("s03.1", "", 5.0, 5.0, "PASSED"))


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ("PASSED PASSED", "PASSED"),
        ("PASSED TIMEOUT", "FAILED"),
        ("NOT_IMPLEMENTED INCORRECT_VALUE", "FAILED"),
        ("NOT_IMPLEMENTED NOT_IMPLEMENTED", "NOT_IMPLEMENTED"),
        ("NOT_IMPLEMENTED SKIPPED", "NOT_IMPLEMENTED"),
        ("PASSED NOT_IMPLEMENTED", "INCOMPLETE"),
        ("SKIPPED NOT_RUN", "SKIPPED"),
        ("NOT_RUN", "NOT_RUN"),
    ],
)
def test_status_of_a_stage(verdicts: str, status: str) -> None:
    assert stage_status(verdicts.split()) == status


def test_evidence_becomes_plain_clean_json() -> None:
    evidence = {
        "first": {"index": np.array([1, 2]), "got": np.float32(0.5)},
        "ratio": float("nan"),
        "log": "\x1b[31mred\x1b[0m\r\n\x00end",
        "object": Path("kernels"),
        "deep": [[[[[[[[[[1]]]]]]]]]],
    }
    document = results_of(Record("s03.2", "", 0, 1.5, "CRASHED", "\x1b]0;title\x07died", evidence=evidence))
    check = document["stages"][0]["checks"][1]
    assert check["message"] == "died"
    assert check["evidence"]["first"] == {"index": [1, 2], "got": 0.5}
    assert (check["evidence"]["ratio"], check["evidence"]["log"]) == ("nan", "red\nend")
    json.dumps(document, allow_nan=False)


def test_evidence_is_bounded_and_keeps_what_is_small() -> None:
    evidence = {"map": [[7] * 200] * 200, "log": "x" * 200_000, "wrong": 3, "list": ["é" * 1000] * 100}
    document = results_of(Record("s03.2", "", 0, 1.5, "CRASHED", "m" * 100_000, evidence=evidence))
    check = document["stages"][0]["checks"][1]
    assert len(json.dumps(check["evidence"], ensure_ascii=False).encode()) <= LARGEST_EVIDENCE
    assert check["evidence"]["wrong"] == 3
    assert check["evidence"]["list"].startswith("left out: ")
    assert len(check["message"]) < 5000


def test_writing_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("old")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_results({"x": float("nan")}, path)
    assert path.read_text() == "old"
    write_results({"x": "é"}, path)
    assert json.loads(path.read_text(encoding="utf-8")) == {"x": "é"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain é 漢 ✓", "plain é 漢 ✓"),
        ("a\tb\r\nc", "a   b\nc"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07", "link"),
        ("bell\x07 back\x08 nul\x00 del\x7f c1\x9b31m", "bell back nul del c131m"),
        ("carriage\rreturn", "carriage\nreturn"),
        ("right\u202eto left\u2066", "rightto left"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("surrogate\ud800", "surrogate\ufffd"),
        ("line\u2028separator", "line\ufffdseparator"),
    ],
)
def test_clean_text_holds_no_control_characters(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_long_text_keeps_its_ends() -> None:
    text = clean("a" * 5000 + "middle" + "z" * 5000, 300)
    assert text.startswith("a" * 200)
    assert text.endswith("z" * 100)
    assert "9706 characters left out" in text
    assert len(clean("x" * 10_000_000, 100)) < 200
    assert clean_line("several\n  words \n here") == "several words here"
    assert clean_line("x" * 50, 10) == "x" * 9 + "…"


def test_of_a_compilers_errors_the_first_in_the_students_file_is_told() -> None:
    log = (
        "In file included from /kit/cuda_bf16.h:3,\n                 from k.cu:1:\n"
        "/kit/cuda_bf16.h:9:1: error: no match\n    9 | x\nk.cu:4:1: error: expected ';'\n    4 | y\n"
        "k.cu:5:1: error: 'z' was not declared in this scope\n"
    )
    failure = StudentError(("CompileError",), "", log=log)
    assert failure.message == "The compiler refused the kernel: k.cu:4:1: error: expected ';'"
    assert failure.evidence["log"].startswith("k.cu:4:1: error: expected ';'\n    4 | y\nk.cu:5")


def test_nvcc_names_a_header_by_its_path_and_a_student_reads_its_name(tmp_path: Path) -> None:
    own = 'own.cuh(3): error: identifier "y" is undefined\n      return y;\n'
    log = f"{tmp_path}/kernels/{own}{GIVEN}/warp.cuh(9): error: z\n"
    report = {"types": ["CompileError", "Error"], "text": "", "where": "", "log": log}
    failure = student_error(report, Connection(tmp_path, Deadlines(), emulated=False, empty=False)._scrub())
    assert failure.message == 'The compiler refused the kernel: own.cuh(3): error: identifier "y" is undefined'
    assert failure.evidence["log"] == own


def test_a_compilers_error_is_shown_with_its_line_and_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "k.cu").write_text("int a\n  int b;\n")
    assert source_lines(tmp_path, "refused: k.cu:2:3: error: expected ';'") == [(1, "int a"), (2, "  int b;")]
    assert source_lines(tmp_path, "refused: k.cu(1): error: expected a ;") == [(1, "int a")]
    for message in ("k.cu:9:1: error", "kernel.cu:1:1: error", "../k.cu:0:1: error", "error"):
        assert source_lines(tmp_path, message) is None


def test_the_evidence_begins_with_the_error_that_the_message_tells_of() -> None:
    remark = {"is_error": False, "kernel": "k", "message": "a remark", "count": 1, "verdict": "DATA_RACE"}
    error = remark | {"is_error": True, "message": "an error", "verdict": "OUT_OF_BOUNDS"}
    failure = failure_of([remark] * MAX_KEPT + [error])
    assert failure is not None
    assert (failure.verdict, failure.message) == ("OUT_OF_BOUNDS", "In k: an error")
    assert failure.evidence["reports"] == [error] + [remark] * (MAX_KEPT - 1)
    assert failure_of([remark]) is None
