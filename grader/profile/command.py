"""`python -m grader profile`: the checks' launches of a submission's kernels, told by source lines."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from given.contracts import CONTRACTS
from rich.text import Text

from grader import UsageError
from grader.commands import Subparsers
from grader.device import choose_device
from grader.grading.stubs import Stub, find_stubs
from grader.grading.submission import take_in
from grader.manifest import Check, Manifest, Stage, load_manifest
from grader.profile.launches import FIRST_SECONDS, Launched, ProfilingWorker, Rehearsal
from grader.profile.page import page
from grader.profile.table import LEGEND, Sources, kernel_table
from grader.report.terminal import Terminal
from grader.text import clean, clean_line, join_names
from grader.worker.connection import Deadlines


def add_profile(commands: Subparsers) -> None:
    parser = commands.add_parser("profile", help="show what kernels do to memory, line by line")
    parser.set_defaults(run=run_profile)
    parser.add_argument("submission", nargs="?", default="starter", help="the folder that holds engine/ (starter)")
    parser.add_argument("--stage", metavar="N", help="the stage whose kernels to look at")
    parser.add_argument("--check", metavar="ID", help="the launches of this check, not of those that count work")
    parser.add_argument("--kernel", metavar="NAME", help="this kernel only")
    parser.add_argument("--html", default="profile.html", metavar="FILE", help="write the page there (profile.html)")


def run_profile(options: argparse.Namespace) -> int:
    """Print a table for each kernel and write the page; 1 when nothing could be profiled.

    Raises UsageError, and NothingToGradeOn where no emulator can run.
    """
    manifest = load_manifest()
    stage, named = _asked(manifest, options)
    kernels = _kernels(manifest, stage, options.kernel)
    target = Path(options.html)
    if not target.parent.is_dir() or target.is_dir():
        raise UsageError(f"--html {options.html}: give the name of a file in a folder that exists.")
    choose_device("cpu")
    terminal = Terminal()
    with tempfile.TemporaryDirectory(prefix="pagedlab-") as folder:
        engine = Path(folder).resolve() / "submission" / "engine"
        take_in(Path(options.submission), manifest.files(), engine)
        stubs = find_stubs(engine)
        launched, notes = _launched(engine, stage, named, kernels, stubs)
        sources = {name: _sources(engine, name) for name in launched}
    for name, found in launched.items():
        terminal.show(*kernel_table(found.profile, found.case, sources[name]))
    if launched:
        terminal.show(Text(f"\n{LEGEND}", "dim"))
    for note in notes:
        print(note)
    if not launched:
        return 1
    target.write_text(page(options.submission, launched, sources), encoding="utf-8")
    print(f"\nThe same with pictures: {clean_line(options.html)} (open it in a browser)")
    return 0


def _asked(manifest: Manifest, options: argparse.Namespace) -> tuple[Stage, list[Check]]:
    """The stage, and the check where one is named."""
    if options.check:
        check = manifest.check(options.check)
        if options.stage and manifest.stage(options.stage).id != check.stage:
            raise UsageError(f"check {check.id} is none of stage {manifest.stage(options.stage).id}.")
        return manifest.stage(check.stage), [check]
    if not options.stage:
        raise UsageError("name a stage or a check: make profile STAGE=6, or make profile CHECK=s06.7.")
    return manifest.stage(options.stage), []


def _kernels(manifest: Manifest, stage: Stage, wanted: str | None) -> list[str]:
    """Names of the stage's kernels, or the wanted one. Raises UsageError when there is none."""
    kernels = [name for name, contract in CONTRACTS.items() if f"kernels/{contract.file}" in stage.files]
    if not kernels:
        with_kernels = [s.id for s in manifest.stages if any(file.endswith(".cu") for file in s.files)]
        raise UsageError(f"stage {stage.id} has no kernels of its own; those with kernels: {join_names(with_kernels)}.")
    if wanted and wanted not in kernels:
        raise UsageError(f"stage {stage.id} has no kernel {clean_line(wanted, 60)!r}; it has {join_names(kernels)}.")
    return [wanted] if wanted else kernels


def _launched(
    engine: Path, stage: Stage, named: Sequence[Check], kernels: Sequence[str], stubs: Sequence[Stub]
) -> tuple[dict[str, Launched], list[str]]:
    """The kernels that were launched, in order, and sentences on those that were not.

    By default the checks that count work run; the others only when a kernel is still missing then.
    """
    to_do = {stub.id for stub in stubs}
    deadlines = Deadlines()
    worker = ProfilingWorker(engine, deadlines)
    rehearsal = Rehearsal(worker, deadlines, stage.id, _tell_progress)
    able = [check for check in named or stage.checks if not to_do.issuperset(check.needs)]
    counting = [check for check in able if rehearsal.counts_work(check)]
    try:
        rehearsal.run(able if named else counting)
        for name in () if named else kernels:
            worker.launch_wide(name)
        preferred = dict(worker.launched)
        if not named and not worker.launched.keys() >= set(kernels):
            rehearsal.run(check for check in able if check not in counting)
    finally:
        worker.end()
        _tell_progress("")
    launched = worker.launched | preferred
    found = {name: launched[name] for name in kernels if name in launched}
    missing = [name for name in kernels if name not in found and not (named and found)]
    return found, [_excuse(engine, name, rehearsal, stubs) for name in missing]


def _tell_progress(check_id: str) -> None:
    """Say on a terminal, in a line that the next one replaces, which check's launches run; no id takes it away."""
    if sys.stderr.isatty():
        line = f"profiling the launches of {check_id}; an endless kernel ends after {FIRST_SECONDS:.0f} s" * bool(
            check_id
        )
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def _excuse(engine: Path, kernel: str, rehearsal: Rehearsal, stubs: Sequence[Stub]) -> str:
    """Why there is nothing to tell of a kernel."""
    file = f"kernels/{CONTRACTS[kernel].file}"
    lines = _sources(engine, kernel)[CONTRACTS[kernel].file]
    head = next((i for i, line in enumerate(lines, 1) if f"{kernel}(" in line.replace(" (", "(")), 0)
    for stub in stubs:
        if stub.file == file and stub.line >= head:
            return f"{kernel}: nothing to profile yet; write {stub.id} in engine/{stub.file}:{stub.line} first."
    for check_id, failure in rehearsal.failures.items():
        if kernel in failure.evidence.get("case", kernel):
            return clean(f"{kernel}: no launch came to its end ({check_id}, {failure.verdict}: {failure.message})")
    return f"{kernel}: no launch of it was seen."


def _sources(engine: Path, kernel: str) -> Sources:
    """A kernel's file and the headers beside it; no lines where a file is missing."""
    headers = sorted(path.name for path in (engine / "kernels").glob("*.cuh"))
    paths = {name: engine / "kernels" / name for name in (CONTRACTS[kernel].file, *headers)}
    return {
        name: path.read_text(encoding="utf-8-sig", errors="replace").split("\n") if path.is_file() else []
        for name, path in paths.items()
    }
