"""Reports have one record a line."""

import json
from math import inf, pi
from pathlib import Path

import pytest

from grader import KIT
from tests.gpu.records import LONGEST, layout

REPORTS = sorted([*(KIT / "tests/gpu").glob("*.json"), *(KIT / "tests/benchmarks").glob("*.json")])


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_a_report_is_laid_out_as_it_is_written(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == layout(json.loads(text)) + "\n", f"run: python -m tests.gpu.records {path.relative_to(KIT)}"


def test_a_layout_holds_the_same_data() -> None:
    record = {"name": "é", "figures": [pi, inf, -0.0, None], "none": {}}
    report = {"machine": record, "rows": {str(i): record for i in range(20)}, "list": [record] * 20, "text": "a" * 1000}
    text = layout(report)
    assert repr(json.loads(text)) == repr(report)
    lines = text.split("\n")
    assert len(lines) == 2 + 1 + 22 + 22 + 1
    assert [line for line in lines if len(line) > LONGEST] == [f' "text": "{"a" * 1000}"']
