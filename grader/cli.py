"""The command line: `python -m grader COMMAND`.

Exit codes of `grade`: 0 all graded checks passed, 1 some did not, 2 wrong usage or manifest, 3 a fault of the grader or
the machine, 4 nothing can be graded here, 5 malformed submission, 130 interrupted. --exit-zero turns only 1 into 0.
Those of the commands that run an engine are the same; there 1 says that the engine failed.
"""

import argparse
import importlib.util
import traceback

from grader import VERSION, UsageError
from grader.commands import Subparsers, report_fault, say
from grader.device import NothingToGradeOn
from grader.emulator.run import add_run
from grader.grading.command import add_grade
from grader.grading.submission import MalformedSubmission
from grader.model.bring import add_model
from grader.profile.command import add_profile
from grader.release.update import add_update
from grader.serving.chat import add_chat, add_generate
from grader.serving.engine import EngineError
from grader.serving.serve import add_serve


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        return code
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        return say(str(error), 2)
    except NothingToGradeOn as error:
        return say(str(error), 4)
    except MalformedSubmission as error:
        return say(str(error), 5)
    except EngineError as error:
        return say(str(error), 1)
    except OSError as error:
        return say(": ".join(filter(None, (error.strerror or str(error), error.filename))), 3)
    except Exception:
        return report_fault(traceback.format_exc())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m grader", description="PagedLab's autograder.")
    parser.add_argument("--version", action="version", version=f"PagedLab {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (add_grade, add_run, add_profile, add_model, add_generate, add_chat, add_serve, add_update):
        add(commands)
    _add_maintainer_commands(commands)
    return parser


def _add_maintainer_commands(commands: Subparsers) -> None:
    """The commands whose modules the student release lacks, where these are."""
    if importlib.util.find_spec("grader.release.starter"):
        from grader.release.starter import add_starter  # noqa: PLC0415  (not in the student release)

        add_starter(commands)
    if importlib.util.find_spec("grader.release.release"):
        from grader.release.release import add_release  # noqa: PLC0415  (not in the student release)

        add_release(commands)
    if importlib.util.find_spec("grader.throughput.calibrate"):
        from grader.throughput.calibrate import add_calibrate  # noqa: PLC0415  (not in the student release)

        add_calibrate(commands)
