"""GPU and emulator agree in the conformance suite: run where a GPU is; elsewhere the last report must not be stale."""

import json
import shutil

import pytest

from tests.gpu.agreement import changed
from tests.gpu.conformance import REPORT, agree, compare, source_hashes
from tests.tools import NOT_RUN


def test_gpu_and_emulator_agree() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip(f"{NOT_RUN}GPU conformance, run python -m tests.gpu.conformance on a machine with an NVIDIA GPU")
    assert agree(compare())


def test_report_is_of_these_kernels() -> None:
    report = json.loads(REPORT.read_text())
    assert changed(report["sources"], source_hashes()) == [], (
        f"stale since {report['machine']['date']}: run python -m tests.gpu.conformance on a GPU"
    )
    assert agree(report["cases"])
