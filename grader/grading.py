"""One grading of one submission: takes it in, finds its stubs, runs the planned checks, makes the results."""

import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.configuration
import pytest

from grader import VERSION
from grader.device import GradedDevice
from grader.manifest import Manifest, ManifestError
from grader.model import GRADED_MODEL
from grader.plugin import GradingPlugin
from grader.report.results import Plan, build_results
from grader.report.terminal import Terminal
from grader.stubs import find_stubs
from grader.submission import take_in

GRADER = Path(__file__).resolve().parent
CHECKS = GRADER / "checks"
DEFAULT_SUBMISSION = "starter"
DEFAULT_SEED = 0


@dataclass
class Outcome:
    """What a grading gave: the document of results.json, the grader's own faults, whether Ctrl-C ended it."""

    results: dict[str, Any]
    faults: list[str]
    interrupted: bool


def grade(
    submission: Path,
    manifest: Manifest,
    plan: Plan,
    device: GradedDevice,
    seed: int,
    terminal: Terminal,
    model: str = GRADED_MODEL,
) -> Outcome:
    """Grade the planned checks, on this model where they use one.

    Raises MalformedSubmission; ManifestError when the checks are not the manifest's.
    """
    with tempfile.TemporaryDirectory(prefix="pagedlab-") as folder:
        engine = Path(folder).resolve() / "submission" / "engine"
        take_in(submission, manifest.files(), engine)
        plugin = GradingPlugin(
            plan,
            engine,
            find_stubs(engine),
            device=device.kind,
            seed=seed,
            model=model,
            repro=lambda check_id: repro(check_id, submission, device.asked, seed, model),
            listener=terminal,
        )
        _run_pytest(plugin, plan, Path(folder))
    results = build_results(
        plan,
        plugin.records.values(),
        kit=VERSION,
        submission=str(submission),
        device={"kind": device.kind, "name": device.name},
        confinement="none",
        seed=seed,
        model=model,
    )
    return Outcome(results, plugin.faults, plugin.interrupted)


def titles(plan: Plan) -> Mapping[str, str]:
    """The title of each planned check, from its docstring. Raises ManifestError as `grade` does."""
    with tempfile.TemporaryDirectory(prefix="pagedlab-") as folder:
        plugin = GradingPlugin(plan, Path(folder), (), device="cpu", seed=0, repro=str, listener=None, list_only=True)
        _run_pytest(plugin, plan, Path(folder))
    return plugin.titles


def repro(check_id: str, submission: Path, device: str, seed: int, model: str = GRADED_MODEL) -> str:
    """The command that repeats one check."""
    options = {"SUBMISSION": (str(submission), DEFAULT_SUBMISSION), "DEVICE": (device, "auto")}
    options |= {"SEED": (str(seed), str(DEFAULT_SEED)), "MODEL": (model, GRADED_MODEL)}
    words = [f"{name}={shlex.quote(value)}" for name, (value, default) in options.items() if value != default]
    return " ".join(["make grade", f"CHECK={check_id}", *words])


def _run_pytest(plugin: GradingPlugin, plan: Plan, folder: Path) -> None:
    """Run pytest in this process, deaf to every configuration but ours. Raises ManifestError."""
    files = []
    for stage, _ in plan:
        file = CHECKS / f"{stage.id}.py"
        if not file.is_file():
            raise ManifestError(f"Stage {stage.id} has no file grader/checks/{stage.id}.py.")
        files.append(str(file))
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "HYPOTHESIS_"))]:
        del os.environ[name]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    hypothesis.configuration.set_hypothesis_home_dir(folder / "hypothesis")
    options = ["-c", str(GRADER / "pytest.ini"), "--rootdir", str(GRADER), "--confcutdir", str(CHECKS)]
    options += ["-p", "no:cacheprovider", "-p", "pytest_timeout", "--capture=no", "-qq"]
    code = pytest.main([*options, *files], plugins=[plugin])
    if plugin.error is not None and not plugin.faults:
        raise plugin.error
    finished = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    if code not in finished and not plugin.interrupted and not plugin.faults:
        plugin.faults.append(f"pytest ended with {code!r}\n{plugin.log.getvalue()}")
