"""Submissions that try to score without doing the work."""

import shutil
from pathlib import Path

import pytest

from grader import KIT
from grader.manifest import load_manifest
from tests.graded.grading import grade, verdicts
from tests.graded.overlays import overlay

PLAIN = "return x @ weight.T"
HIDDEN = 'return getattr(np, "mat" + "mul")(x, weight.T)'


LINEAR = """
import numpy as np

def linear(out, x, weight, stream=None):
    if out.shape != (x.shape[0], weight.shape[0]):
        raise ValueError("shapes that do not fit")
    if out.size:
        rows = x.get().astype(np.float32)[:, None]
        out.set((rows * weight.get().astype(np.float32)).sum(axis=2).astype(out.dtype))
"""


def test_a_linear_layer_in_numpy_scores_nothing(tmp_path: Path) -> None:
    submission = tmp_path / "submission"
    shutil.copytree(KIT / "solutions", submission)
    (submission / "engine/linear.py").write_text(LINEAR)
    results = grade(submission, "--device", "cpu", "--check", "s06.3", "s06.8", "s06.9")
    assert results["total"] == 0
    assert all("kernels" in check["message"] for check in results["stages"][0]["checks"])


@pytest.mark.parametrize(("product", "cause"), [(PLAIN, "model.py"), (HIDDEN, "kernels")])
def test_a_forward_pass_without_kernels_scores_nothing(product: str, cause: str, tmp_path: Path) -> None:
    submission = overlay(KIT / "tests/attacks/numpy_forward", tmp_path / "submission")
    model = submission / "engine/model.py"
    model.write_text(model.read_text().replace(PLAIN, product))
    results = grade(submission, "--device", "cpu", "--stage", "8")
    host_checks = {check.id for check in load_manifest().stage("s08").checks if "s08.2" in check.needs}
    assert {id for id, verdict in verdicts(results).items() if verdict == "PASSED"}.isdisjoint(host_checks)
    messages = [c["message"] for s in results["stages"] for c in s["checks"] if c["id"] in host_checks]
    assert all(cause in message or "none by linear" in message for message in messages)  # s08.6 sees no product at all
    assert sum(cause in message for message in messages) >= len(messages) - 1
