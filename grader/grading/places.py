"""Where the parts of a check stand: the check, the stubs of its tasks, their solutions, its row in the handout."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from grader import KIT
from grader.grading.stubs import find_stubs
from grader.grading.submission import engine_folder
from grader.manifest import SUFFIXES, Check, Stage

SOLUTIONS = KIT / "solutions" / "engine"
"""Not part of the student release."""

_SOLUTION = re.compile(r" *(?://|#) (s\d\d\.\d+)(?::|$)")
_CHECK_TABLE = "<!-- checks:"
"""How the line above the table of checks begins in each handout."""

Marks = dict[str, list[tuple[str, int]]]
"""Tasks and lines by the file, below an engine folder, in which a stub or a solution begins."""


class Places:
    """The places of the checks of one submission, as texts `file:line`, files below the kit by their path in it."""

    def __init__(self, submission: Path) -> None:
        """Raises MalformedSubmission when there is no engine folder."""
        self._engine = engine_folder(submission)
        self._stubs: Marks = {}
        for stub in find_stubs(self._engine):
            self._stubs.setdefault(stub.file, []).append((stub.id, stub.line))
        self._solutions = _solutions(SOLUTIONS)

    def of(self, stage: Stage, check: Check) -> Iterator[tuple[str, str]]:
        """(part, place) for each place of a check: `check`, `stub`, `solution` and `handout`.

        Stubs and solutions are those of the tasks of its stage; there are none of a task that is begun, or in a
        release without solutions.
        """
        file = f"grader/checks/{stage.id}.py"
        decorator, row = f'@check("{check.id}")', f"| {check.id} |"
        yield "check", f"{file}:{_line_of(KIT / file, decorator)}"
        tasks = {need for need in check.needs if need.partition(".")[0] == stage.id}
        for part, engine, marks in (("stub", self._engine, self._stubs), ("solution", SOLUTIONS, self._solutions)):
            for name in _matching(marks, stage.files):
                lines = sorted({line for task, line in marks[name] if task in tasks})
                if lines:
                    yield part, f"{_shown(engine / name)}:{', '.join(map(str, lines))}"
        file = f"assignments/{stage.handout}"
        yield "handout", f"{file}:{_line_of(KIT / file, row, after=_CHECK_TABLE)}"


def _solutions(engine: Path) -> Marks:
    """Where solutions are marked; none when the folder is not there."""
    marks: Marks = {}
    for path in sorted(engine.rglob("*.*")):
        if path.suffix in SUFFIXES:
            lines = enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
            found = [(match[1], number) for number, line in lines if (match := _SOLUTION.match(line))]
            marks[path.relative_to(engine).as_posix()] = found
    return marks


def _matching(names: Iterable[str], patterns: Iterable[str]) -> Iterator[str]:
    """The names that match these patterns, in the patterns' order."""
    for pattern in patterns:
        yield from sorted(name for name in names if fnmatchcase(name, pattern))


def _line_of(path: Path, start: str, after: str = "") -> int:
    """Number of the first line that begins with `start`, below the one that begins with `after`; 1 when none does."""
    below = not after
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if below and line.startswith(start):
            return number
        below = below or line.startswith(after)
    return 1


def _shown(path: Path) -> Path:
    return path.relative_to(KIT) if path.is_relative_to(KIT) else path
