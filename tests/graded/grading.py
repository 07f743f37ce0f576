"""Run the grader as its users do, on a submission, and read the record that it wrote."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from grader import KIT


def grade(submission: Path, *options: str, kit: Path = KIT) -> dict[str, Any]:
    """results.json of `python -m grader grade`; fails with the grader's own text when it wrote none."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "results.json"
        command = [sys.executable, "-m", "grader", "grade", str(submission), "--json", str(record), *options]
        result = subprocess.run(command, cwd=kit, capture_output=True, text=True, timeout=900)
        assert record.exists(), f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        return dict(json.loads(record.read_text()), exit_code=result.returncode, output=result.stdout)


def verdicts(results: dict[str, Any]) -> dict[str, str]:
    """Verdict of every check by its id."""
    return {check["id"]: check["verdict"] for stage in results["stages"] for check in stage["checks"]}


def failures(results: dict[str, Any]) -> dict[str, str]:
    """Verdict and message of every check that did not pass."""
    checks = [check for stage in results["stages"] for check in stage["checks"]]
    return {c["id"]: f"{c['verdict']}: {c['message']}" for c in checks if c["verdict"] != "PASSED"}


def hint(results: dict[str, Any], check_id: str) -> str:
    """The hint of a check; empty where it has none."""
    checks = [check for stage in results["stages"] for check in stage["checks"] if check["id"] == check_id]
    return str(checks[0]["evidence"].get("hint") or "")
