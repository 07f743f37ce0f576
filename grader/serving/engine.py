"""Runs a submission's engine in this process, for those who use it: generate, chat, serve. Nothing here is graded.

On the CPU the kernels still run in a device process of their own, which the emulated PyCUDA starts.
"""

import argparse
import atexit
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grader import KIT, UsageError
from grader.device import choose_device
from grader.grading.stubs import find_stubs
from grader.grading.submission import engine_folder
from grader.manifest import load_manifest
from grader.model import DEFAULT_MODEL
from grader.worker.error_report import describe
from grader.worker.student_errors import student_error

LLM_TASK = "s13.2"
"""The stub of the class LLM."""


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which engine runs, on what."""
    parser.add_argument("--submission", default="starter", help="the folder that holds engine/ (starter)")
    parser.add_argument("--model", default=DEFAULT_MODEL, help=f"name in models/, or a folder ({DEFAULT_MODEL})")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")


class EngineError(Exception):
    """The submission's code failed; the text says what, where and what to do."""


class Engine:
    """The engine package of a submission, importable, on one device."""

    def __init__(self, submission: Path, device: str) -> None:
        """`device` is "auto", "cpu" or "gpu". Only one engine can be opened in a process.

        Raises MalformedSubmission, NothingToGradeOn, EngineError; UsageError for a folder that is not called engine.
        """
        self.folder = engine_folder(submission).resolve()
        if self.folder.name != "engine":
            raise UsageError(f"{self.folder} must be called engine, since its files import each other by that name.")
        self.device = choose_device(device)
        sys.dont_write_bytecode = True  # the submission's folder stays as it is
        if self.device.kind == "cpu":
            sys.path.insert(0, str(KIT / "grader" / "emulator" / "client"))
        sys.path.append(str(self.folder.parent))
        with self.errors():
            from grader.worker.submission_process import Submission  # noqa: PLC0415  (finds the PyCUDA chosen above)

            device_side = Submission(self.folder, self.device.kind == "cpu")
        atexit.register(device_side.driver.Context.pop)  # PyCUDA aborts a program that leaves its context behind

    def get(self, module: str, name: str) -> Any:
        """`engine/MODULE.py`'s NAME. Raises EngineError."""
        with self.errors():
            found = getattr(importlib.import_module(f"engine.{module}"), name, None)
        if found is None:
            raise EngineError(f"engine/{module}.py defines no {name}.")
        return found

    def llm(self, model_dir: Path, **options: Any) -> Any:
        """The engine's LLM on a model. Raises EngineError, also when stubs remain that it certainly runs into."""
        checks = [check for check in load_manifest().checks if LLM_TASK in check.needs]
        needed = {need for check in checks for need in check.needs}
        if open_tasks := sorted({stub.id for stub in find_stubs(self.folder) if stub.id in needed}):
            raise EngineError(f"NOT_IMPLEMENTED {', '.join(open_tasks)}: the engine needs them. {self._next()}")
        create = self.get("llm", "LLM")
        with self.errors():
            return create(str(model_dir), **options)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Around calls of the submission's code: what they raise becomes an EngineError with its file and line."""
        try:
            yield
        except Exception as error:
            raise EngineError(self.explain(error)) from error

    def explain(self, error: BaseException) -> str:
        """What the submission's code raised, with its file and line, and what to do."""
        report = describe(error, self.folder)
        where = f"engine/{report['where']}" if report["where"] else ""
        failure = student_error({**report, "where": where}, {str(self.folder): "engine"})
        if failure.verdict == "NOT_IMPLEMENTED":
            return f"NOT_IMPLEMENTED {failure.text or 'a part'}{f' ({where})' if where else ''}. {self._next()}"
        return "\n".join(filter(None, (failure.message, str(failure.evidence.get("log", "")))))

    def _next(self) -> str:
        """What may work already, and which stub is next."""
        first = min(
            find_stubs(self.folder), key=lambda stub: [int(part) for part in stub.id[1:].split(".")], default=None
        )
        if first is None:
            return ""
        stage = int(first.id[1:3])
        done = f"Stages s00 to s{stage - 1:02} have no stub left; make grade tests them. " if stage else ""
        return f"{done}The first stub is {first.id} in engine/{first.file}:{first.line}: make grade STAGE={stage}."
