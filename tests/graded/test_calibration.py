"""The tolerances leave room for right solutions and none for wrong ones, over 20 seeds."""

import subprocess
import sys

from grader import KIT


def test_tolerances_are_calibrated() -> None:
    result = subprocess.run([sys.executable, "-m", "tests.graded.calibration"], cwd=KIT, capture_output=True, text=True)
    print(result.stdout)  # `make test-all` shows the tables
    assert result.returncode == 0, result.stdout + result.stderr
