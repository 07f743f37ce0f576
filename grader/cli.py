"""The command line: `python -m grader COMMAND`.

Exit codes of `grade`: 0 all graded checks passed, 1 some did not, 2 wrong usage or manifest, 3 a fault of the grader or
the machine, 4 nothing can be graded here, 5 malformed submission, 130 interrupted. --exit-zero turns only 1 into 0.
Those of the commands that run an engine are the same; there 1 says that the engine failed.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from grader import VERSION, UsageError
from grader.device import NothingToGradeOn, choose_device, has_compiled
from grader.emulator.run import add_run
from grader.grading.grading import grade, titles
from grader.grading.places import Places
from grader.grading.submission import MalformedSubmission
from grader.manifest import Check, Manifest, Stage, load_manifest
from grader.model import DEFAULT_MODEL, GRADED_MODEL, find_model
from grader.model.bring import run_model
from grader.oracle.references import has_references
from grader.profile.command import add_profile
from grader.release.update import run_update
from grader.report.results import write_results
from grader.report.terminal import Terminal
from grader.serving.chat import run_chat, run_generate
from grader.serving.engine import EngineError
from grader.serving.serve import run_serve
from grader.text import clean_line


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        return code
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        return _say(str(error), 2)
    except NothingToGradeOn as error:
        return _say(str(error), 4)
    except MalformedSubmission as error:
        return _say(str(error), 5)
    except EngineError as error:
        return _say(str(error), 1)
    except OSError as error:
        return _say(": ".join(filter(None, (error.strerror or str(error), error.filename))), 3)
    except Exception:
        return report_fault(traceback.format_exc())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m grader", description="PagedLab's autograder.")
    parser.add_argument("--version", action="version", version=f"PagedLab {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    grade = commands.add_parser("grade", help="grade a submission")
    grade.set_defaults(run=run_grade)
    grade.add_argument("submission", nargs="?", default="starter", help="the folder that holds engine/ (starter)")
    grade.add_argument("--stage", nargs="+", action="extend", default=[], metavar="N", help="only these stages")
    grade.add_argument("--check", nargs="+", action="extend", default=[], metavar="ID", help="only these checks")
    grade.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    grade.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed of all drawn inputs (0)")
    grade.add_argument("--model", default=GRADED_MODEL, help="run the checks that can on it: smollm2-135m (tiny)")
    grade.add_argument("--json", metavar="FILE", help="write the results there")
    grade.add_argument("--list", action="store_true", help="list the checks, grade nothing")
    grade.add_argument("--where", action="store_true", help="with --list: where check, stub, solution, handout stand")
    grade.add_argument("--exit-zero", action="store_true", help="exit code 0 also when checks fail")
    add_run(commands, _seed)
    add_profile(commands)
    _add_model_commands(commands)
    update = commands.add_parser("update", help="take a new release of the kit")
    update.set_defaults(run=run_update)
    update.add_argument("source", metavar="ZIP")
    _add_maintainer_commands(commands)
    return parser


def _add_model_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The commands that bring a model and that run an engine on it."""
    model = commands.add_parser("model", help="bring a model into models/")
    model.set_defaults(run=run_model)
    model.add_argument("model", nargs="?", default=DEFAULT_MODEL, metavar="NAME|FOLDER|HUB_ID")
    generate = commands.add_parser("generate", help="let an engine answer a prompt")
    generate.set_defaults(run=run_generate)
    generate.add_argument("prompt")
    chat = commands.add_parser("chat", help="talk with an engine")
    chat.set_defaults(run=run_chat)
    serve = commands.add_parser("serve", help="offer an engine to OpenAI's clients")
    serve.set_defaults(run=run_serve)
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=_port, default=8000, help="0 takes a free one (8000)")
    serve.add_argument("--max-num-seqs", type=_count(1), default=8, metavar="N", help="requests running at once (8)")
    serve.add_argument("--queue", type=_count(0), default=64, metavar="N", help="requests waiting beside them (64)")
    for command in (generate, chat, serve):
        command.add_argument("--submission", default="starter", help="the folder that holds engine/ (starter)")
        command.add_argument("--model", default=DEFAULT_MODEL, help=f"name in models/, or a folder ({DEFAULT_MODEL})")
        command.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    for command in (generate, chat):
        command.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest token (0)")
        command.add_argument("--max-tokens", type=int, default=256, help="of an answer, at most (256)")


def _add_maintainer_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The commands whose modules the student release lacks, where these are."""
    if importlib.util.find_spec("grader.release.starter"):
        from grader.release.starter import run_starter  # noqa: PLC0415  (not in the student release)

        starter = commands.add_parser("starter", help="generate starter/ from solutions/")
        starter.set_defaults(run=run_starter)
        starter.add_argument("--check", action="store_true", help="only say what differs")
    if importlib.util.find_spec("grader.release.release"):
        from grader.release.release import run_release  # noqa: PLC0415  (not in the student release)

        pack = commands.add_parser("release", help="make the student release")
        pack.set_defaults(run=run_release)
        pack.add_argument("--into", default="dist", metavar="FOLDER")
    if importlib.util.find_spec("grader.throughput.calibrate"):
        from grader.throughput.calibrate import add_calibrate  # noqa: PLC0415  (not in the student release)

        add_calibrate(commands)


def _seed(text: str) -> int:
    if not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{clean_line(text, 40)!r} is no whole number from 0 to 2^63 - 1")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or len(text) > 5 or int(text) >= 2**16:
        raise argparse.ArgumentTypeError(f"{clean_line(text, 40)!r} is no port, a whole number from 0 to 65535")
    return int(text)


def _count(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 6 or int(text) < least:
            raise argparse.ArgumentTypeError(f"{clean_line(text, 40)!r} is no whole number from {least} to 999999")
        return int(text)

    return read


def run_grade(options: argparse.Namespace) -> int:
    """`grade`: what the module's docstring says."""
    if options.where and not options.list:
        raise UsageError("--where says where the listed checks stand: use it with --list.")
    manifest = load_manifest()
    plan = _plan(manifest, options)
    if options.list:
        return _list(plan, titles(plan), Places(Path(options.submission).expanduser()) if options.where else None)
    record = Path(options.json).resolve() if options.json else None
    if record and not record.parent.is_dir():
        return _say(f"--json {record}: there is no folder {record.parent}.", 2)
    if record and record.exists() and not record.is_file():
        return _say(f"--json {record}: that is no file.", 2)
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
        return _say("interrupted; what was graded so far is above.", 130)
    if outcome.faults:
        return report_fault("\n".join(outcome.faults))
    passed = all(check["verdict"] == "PASSED" for stage in outcome.results["stages"] for check in stage["checks"])
    return 0 if passed or options.exit_zero else 1


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


def report_fault(text: str) -> int:
    """Write a fault of the grader's own to a file, say so in a sentence; PAGEDLAB_DEBUG=1 shows it too."""
    handle, path = tempfile.mkstemp(prefix="pagedlab-fault-", suffix=".log")
    with open(handle, "w", encoding="utf-8", errors="replace") as file:
        file.write(f"PagedLab {VERSION}\n{text}")
    if os.environ.get("PAGEDLAB_DEBUG") == "1":
        print(text, file=sys.stderr)
    reason = clean_line((text.strip().splitlines() or [""])[-1], 300)
    return _say(f"the grader itself failed, which is not your fault: {reason} (send your instructor {path})", 3)


def _say(sentence: str, code: int) -> int:
    print(f"PagedLab: {sentence}", file=sys.stderr)
    return code
