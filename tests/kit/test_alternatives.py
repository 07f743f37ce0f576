"""Correct solutions that differ from ours score full points too: checks ask for the contract, not for our way."""

from pathlib import Path

import pytest

from grader import KIT
from tests.kit.grading import failures, grade
from tests.kit.overlays import overlay

ALTERNATIVES = sorted(path for path in (KIT / "tests/alternatives").iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", ALTERNATIVES, ids=lambda path: path.name)
def test_alternative_scores_full_points(folder: Path, tmp_path: Path) -> None:
    results = grade(overlay(folder, tmp_path / "submission"), "--device", "cpu")
    assert failures(results) == {}
    assert results["total"] == results["max"]
