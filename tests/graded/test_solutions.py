"""What the grader must accept in full (the solutions) and give nothing (the starter)."""

import os

import pytest

from grader import KIT
from tests.graded.grading import failures, grade, verdicts

SEEDS = ("0", "1", "2") if os.environ.get("PAGEDLAB_ALL") else ("0",)


@pytest.mark.parametrize("seed", SEEDS)
def test_solutions_score_full_points(seed: str) -> None:
    results = grade(KIT / "solutions", "--device", "cpu", "--seed", seed)
    assert failures(results) == {}
    assert results["total"] == results["max"] > 0
    assert results["exit_code"] == 0
    checks = [check for stage in results["stages"] for check in stage["checks"]]
    assert {check["id"]: check["evidence"]["remarks"] for check in checks if "remarks" in check["evidence"]} == {}
    assert "all public checks passed" in results["output"]


def test_starter_scores_nothing() -> None:
    results = grade(KIT / "starter", "--device", "cpu")
    assert set(verdicts(results).values()) == {"NOT_IMPLEMENTED"}
    assert results["total"] == 0
    assert results["exit_code"] == 1
