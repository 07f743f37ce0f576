"""Answers that do not come from the submission's kernels score nothing, whatever its kernels do beside them."""

from pathlib import Path

import pytest

from grader.checks.support.interventions import CALLS, subject_of
from grader.manifest import load_manifest
from tests.graded.foreign_engines import write_foreign_engine
from tests.graded.grading import failures, grade, verdicts

MANIFEST = load_manifest()
JUDGED = [check.id for check in MANIFEST.checks if check.empty_repeat and subject_of(check.id) is not None]
SELECTION = [word for stage in CALLS for word in ("--stage", str(int(stage[1:])))]


@pytest.mark.parametrize(
    ("source", "beside"), [("numpy_llama", "zeros"), ("kits_oracle", "nothing"), ("stored_logits", "zeros")]
)
def test_a_foreign_engine_scores_nothing(source: str, beside: str, tmp_path: Path) -> None:
    submission = write_foreign_engine(source, beside, tmp_path / "submission")
    results = grade(submission, "--device", "cpu", "--seed", "0", *SELECTION)
    found = verdicts(results)
    assert [check for check in JUDGED if found[check] == "PASSED"] == [], failures(results)
    assert "The answer does not come from your kernels" in failures(results)["s08.2"]
