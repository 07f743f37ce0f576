"""`calibrate` measures every workload with the solutions and writes what it measured; here at small sizes."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from grader import KIT, cli
from grader.device import GradedDevice, NothingToGradeOn
from grader.failure import Failure
from grader.oracle.references import load_oracle
from grader.oracle.scripted import scripted_model
from grader.throughput import calibrate
from grader.throughput.timing import Figure, load_figures
from grader.throughput.workloads import (
    WORKLOADS,
    Workload,
    attention_kernels,
    decode_alone,
    decode_together,
    expect_part,
    serve_random,
)
from grader.worker.client import Worker
from grader.worker.connection import Deadlines

SMALL: dict[str, Workload] = {
    "s09": partial(decode_alone, prompt=5, tokens=6),
    "s11": partial(attention_kernels, length=40, sequences=2),
    "s12": partial(decode_together, sequences=3, prompt=5, steps=4),
    "s13": partial(serve_random, requests=6, lengths=(4, 12), slots=3),
    "s16": partial(serve_random, requests=6, lengths=(4, 12), slots=3, kv_memory_bytes=20_000),
}


def test_the_solutions_run_every_workload(tmp_path: Path) -> None:
    functions = [{name: getattr(each, "func", None) for name, each in table.items()} for table in (SMALL, WORKLOADS)]
    assert functions[0] == functions[1]
    scripted_model(np.random.default_rng(0), tmp_path)
    worker = Worker(KIT / "solutions/engine", Deadlines(), emulated=True)
    try:
        for workload in SMALL.values():
            timed = workload(worker, tmp_path, np.random.default_rng(1))
            assert timed.seconds > 0 < timed.bytes
            if timed.answers:
                expect_part(load_oracle(tmp_path), timed, np.random.default_rng(0))
    finally:
        worker.end()


@pytest.mark.parametrize("workload", SMALL.values(), ids=SMALL)
def test_work_that_is_left_out_shows(workload: Workload, tmp_path: Path) -> None:
    scripted_model(np.random.default_rng(0), tmp_path)
    worker = Worker(KIT / "solutions/engine", Deadlines(), emulated=True, empty=True)
    try:
        with pytest.raises(Failure):
            expect_part(
                load_oracle(tmp_path), workload(worker, tmp_path, np.random.default_rng(1)), np.random.default_rng(0)
            )
    finally:
        worker.end()


def test_figures_are_written_beside_those_of_other_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "thresholds.toml"
    file.write_text("# The head stays.\n")
    calibrate.write_figures({"NVIDIA A": {"s16": Figure(12345.678, 0.45678), "s09": Figure(2e6, 0.1)}}, file)
    assert file.read_text().startswith('# The head stays.\n\n[gpu."NVIDIA A".s09]\n')
    figures = dict(load_figures(file))
    assert figures["NVIDIA A"] == {"s16": Figure(12350.0, 0.4568), "s09": Figure(2e6, 0.1)}
    monkeypatch.setattr(calibrate, "THRESHOLDS", file)
    monkeypatch.setattr(calibrate, "load_figures", lambda: load_figures(file))
    monkeypatch.setattr(calibrate, "choose_device", lambda asked: GradedDevice("gpu", "NVIDIA B", asked))
    monkeypatch.setattr(calibrate, "bench_model", lambda folder: None)
    monkeypatch.setattr(calibrate, "measure", lambda engine, folder, workload: Figure(7.0, 0.5))
    monkeypatch.setattr(calibrate, "write_figures", partial(calibrate.write_figures, path=file))
    assert cli.main(["calibrate", "--only", "s12"]) == 0
    assert load_figures(file) == {**figures, "NVIDIA B": {"s12": Figure(7.0, 0.5)}}


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none(asked: str) -> GradedDevice:
        raise NothingToGradeOn("DEVICE=gpu, but PyCUDA is not installed")

    monkeypatch.setattr(calibrate, "choose_device", none)
    assert cli.main(["calibrate"]) == 4
    assert "DEVICE=gpu, but PyCUDA is not installed" in capsys.readouterr().err


def test_an_unknown_workload_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["calibrate", "--only", "s77"]) == 2
    assert "no workload s77; known are s09" in capsys.readouterr().err
