"""`python -m grader calibrate`: measure this machine's GPU with the solutions and write it into thresholds.toml."""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from grader import UsageError
from grader.commands import Subparsers
from grader.device import choose_device
from grader.failure import Failure
from grader.throughput.llama_shape import bench_model
from grader.throughput.timing import THRESHOLDS, Figure, Figures, load_figures, roofline_seconds
from grader.throughput.workloads import WORKLOADS, Workload
from grader.worker.client import Worker
from grader.worker.connection import Deadlines

RUNS = 3
"""The best of so many runs counts."""
CALL_SECONDS = 3600.0


def add_calibrate(commands: Subparsers) -> None:
    parser = commands.add_parser("calibrate", help="measure this machine's GPU with the solutions")
    parser.set_defaults(run=run_calibrate)
    parser.add_argument("--submission", default="solutions", help="the folder that holds engine/ (solutions)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}")


def run_calibrate(options: argparse.Namespace) -> int:
    """The command. Raises NothingToGradeOn without a GPU, UsageError for an unknown workload or a failing engine."""
    unknown = set(options.only) - set(WORKLOADS)
    if unknown:
        raise UsageError(f"there is no workload {', '.join(sorted(unknown))}; known are {', '.join(WORKLOADS)}.")
    gpu = choose_device("gpu").name
    engine = Path(options.submission).resolve() / "engine"
    figures = {name: dict(entries) for name, entries in load_figures().items()}
    with tempfile.TemporaryDirectory(prefix="pagedlab-") as folder:
        print(f"PagedLab: writing a model of Llama 3.2 1B's shape, then measuring the {gpu}", flush=True)
        bench_model(Path(folder))
        for name, workload in WORKLOADS.items():
            if name in (options.only or WORKLOADS):
                figure = measure(engine, Path(folder), workload)
                print(
                    f"  {name}  {figure.tokens_per_second:12,.1f} tokens/s  roofline {figure.roofline:.3f}", flush=True
                )
                figures.setdefault(gpu, {})[name] = figure
                write_figures(figures)  # what a later workload breaks off is not lost
    return 0


def measure(engine: Path, folder: Path, workload: Workload) -> Figure:
    """The best of RUNS runs. Raises UsageError when the engine fails."""
    best = Figure(0.0, 0.0)
    for _ in range(RUNS):
        worker = Worker(engine, Deadlines(call_seconds=CALL_SECONDS), emulated=False)
        try:
            timed = workload(worker, folder, np.random.default_rng())
            worker.release()
            floor = roofline_seconds(worker, timed.bytes)
        except Failure as failure:
            raise UsageError(f"the engine that is measured fails: {failure}") from None
        finally:
            worker.end()
        if timed.rate > best.tokens_per_second:
            best = Figure(timed.rate, floor / timed.seconds)
    return best


def write_figures(figures: Figures, path: Path = THRESHOLDS) -> None:
    """Write all figures into thresholds.toml below the comment at its head."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("#")]
    for gpu, entries in sorted(figures.items()):
        for name, figure in sorted(entries.items()):
            numbers = [f"{key} = {_decimal(number)}" for key, number in asdict(figure).items()]
            head += ["", f'[gpu."{gpu}".{name}]', *numbers]
    path.write_text("\n".join(head) + "\n", encoding="utf-8")


def _decimal(number: float) -> str:
    """Four digits, with a decimal point, as TOML's decimals have it."""
    return repr(float(f"{number:.4g}"))
