"""`python -m grader grade`: grade a submission, or list the checks."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from grader import VERSION, UsageError
from grader.commands import Subparsers, read_seed, report_fault, say
from grader.device import choose_device, has_compiled
from grader.grading.grading import grade, titles
from grader.grading.places import Places
from grader.manifest import Check, Manifest, Stage, load_manifest
from grader.model import DEFAULT_MODEL, GRADED_MODEL, find_model
from grader.oracle.references import has_references
from grader.report.results import write_results
from grader.report.terminal import Terminal


def add_grade(commands: Subparsers) -> None:
    parser = commands.add_parser("grade", help="grade a submission")
    parser.set_defaults(run=run_grade)
    parser.add_argument("submission", nargs="?", default="starter", help="the folder that holds engine/ (starter)")
    parser.add_argument("--stage", nargs="+", action="extend", default=[], metavar="N", help="only these stages")
    parser.add_argument("--check", nargs="+", action="extend", default=[], metavar="ID", help="only these checks")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--seed", type=read_seed, default=0, metavar="N", help="seed of all drawn inputs (0)")
    parser.add_argument("--model", default=GRADED_MODEL, help="run the checks that can on it: smollm2-135m (tiny)")
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    parser.add_argument("--list", action="store_true", help="list the checks, grade nothing")
    parser.add_argument("--where", action="store_true", help="with --list: where check, stub, solution, handout stand")
    parser.add_argument("--exit-zero", action="store_true", help="exit code 0 also when checks fail")


def run_grade(options: argparse.Namespace) -> int:
    """The exit code, as cli.py lists them. Raises UsageError, NothingToGradeOn, MalformedSubmission."""
    if options.where and not options.list:
        raise UsageError("--where says where the listed checks stand: use it with --list.")
    manifest = load_manifest()
    plan = _plan(manifest, options)
    if options.list:
        return _list(plan, titles(plan), Places(Path(options.submission).expanduser()) if options.where else None)
    record = _record(options.json) if options.json else None
    submission = Path(options.submission).expanduser()
    terminal = Terminal()
    try:
        device = choose_device(options.device)
        why = f" ({device.reason})" if device.reason else ""
        model = "" if options.model == GRADED_MODEL else f", with the model {options.model}"
        first = "" if has_compiled() else "; the first check takes up to a minute: the emulator is built, once"
        terminal.start(plan, f"PagedLab {VERSION} grades {submission} on the {device.name}{why}{model}{first}")
        outcome = grade(submission, manifest, plan, device, options.seed, terminal, options.model)
    finally:
        terminal.stop()
    try:
        if record:
            write_results(outcome.results, record)
    finally:
        terminal.finish(outcome.results)
    if outcome.interrupted:
        return say("interrupted; what was graded so far is above.", 130)
    if outcome.faults:
        return report_fault("\n".join(outcome.faults))
    passed = all(check["verdict"] == "PASSED" for stage in outcome.results["stages"] for check in stage["checks"])
    return 0 if passed or options.exit_zero else 1


def _record(name: str) -> Path:
    """The file that takes the results. Raises UsageError when it cannot."""
    record = Path(name).resolve()
    if not record.parent.is_dir():
        raise UsageError(f"--json {record}: there is no folder {record.parent}.")
    if record.exists() and not record.is_file():
        raise UsageError(f"--json {record}: that is no file.")
    return record


def _plan(manifest: Manifest, options: argparse.Namespace) -> list[tuple[Stage, list[Check]]]:
    """What to grade; on another model than tiny, which must be here and have references, only what can run on it."""
    if options.model == GRADED_MODEL:
        return manifest.select(options.stage, options.check)
    if not has_references(options.model):
        raise UsageError(f"there are no reference outputs of {options.model!r}; MODEL={DEFAULT_MODEL} has them.")
    if not options.list:
        find_model(options.model)
    return manifest.select_for_model(options.stage, options.check)


def _list(plan: list[tuple[Stage, list[Check]]], titles: Mapping[str, str], places: Places | None) -> int:
    for stage, checks in plan:
        print(f"{stage.id}  {stage.title}, {stage.points:g} points")
        for check in checks:
            print(f"  {check.id:7} {check.points:4g}  {titles.get(check.id, '')}")
            before = ""
            for part, place in places.of(stage, check) if places else ():
                print(f"{'':16}{part if part != before else '':8}  {place}")
                before = part
    return 0
