"""Correct solutions that differ from ours score full points too: checks ask for the contract, not for our way."""

import os
from pathlib import Path

import pytest

from grader import KIT
from grader.manifest import load_manifest
from tests.graded.grading import failures, grade
from tests.graded.overlays import overlay

ALTERNATIVES = sorted(path for path in (KIT / "tests/alternatives").iterdir() if path.is_dir())


SHARED = "launch.toml"
"""Every stage reads it; the kernels beside it tell which entries an alternative changes."""


def stages_touched(folder: Path) -> list[str]:
    """Options that select the stages with a file of this alternative; with PAGEDLAB_ALL=1 none, which selects all."""
    if os.environ.get("PAGEDLAB_ALL"):
        return []
    changed = {path.relative_to(folder / "engine").as_posix() for path in folder.rglob("*") if path.is_file()}
    stages = [stage.id for stage in load_manifest().stages if (changed - {SHARED}) & set(stage.files)]
    return ["--stage", *stages]


@pytest.mark.parametrize("folder", ALTERNATIVES, ids=lambda path: path.name)
def test_alternative_scores_full_points(folder: Path, tmp_path: Path) -> None:
    results = grade(overlay(folder, tmp_path / "submission"), "--device", "cpu", *stages_touched(folder))
    assert failures(results) == {}
    assert results["total"] == results["max"]
