"""Loads grader/manifest.toml, the one source of stages, checks, points, files, dependencies and deadlines.

What is loaded is valid: every rule that the manifest must keep is tested here, and a broken one raises `ManifestError`
with the name of the stage or check and the remedy.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from grader import UsageError
from grader.text import join_names

MANIFEST = Path(__file__).resolve().parent / "manifest.toml"
SUFFIXES = (".cu", ".cuh", ".py", ".toml")

_NUMBER = (int, float)
_HEAD = {"deadline": _NUMBER, "stage": list}
_STAGE = {"id": str, "title": str, "handout": str, "points": _NUMBER, "deadline": _NUMBER, "files": list}
_STAGE |= {"task": list, "check": list}
_TASK = {"id": str, "calls": list}
_CHECK = {"id": str, "points": _NUMBER, "runs": list, "deadline": _NUMBER, "empty_repeat": bool, "any_model": bool}

Needs = dict[str, frozenset[str]]
"""What each task needs, in order: its own id and those of all tasks that it calls, directly or not."""


class ManifestError(UsageError):
    """The manifest is malformed, or a stage or check was asked for that it does not have."""


@dataclass(frozen=True)
class Check:
    """One graded check. `needs` are the ids of the tasks it exercises; `deadline` is in seconds, for the whole check.

    With `empty_repeat` it is repeated on the emulator with kernels that do nothing, and must then fail. With
    `any_model` it can run on another model than tiny, which its fixture `tiny` then gives.
    """

    id: str
    points: float
    needs: tuple[str, ...]
    deadline: float
    empty_repeat: bool = False
    any_model: bool = False

    @property
    def stage(self) -> str:
        """The id of the stage that it belongs to."""
        return self.id.partition(".")[0]


@dataclass(frozen=True)
class Stage:
    """One stage. `files` are paths or patterns below the engine folder."""

    id: str
    title: str
    handout: str
    points: float
    files: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def number(self) -> int:
        return int(self.id[1:])

    @property
    def requires(self) -> tuple[str, ...]:
        """Ids of the earlier stages whose code its checks exercise."""
        called = {need.partition(".")[0] for check in self.checks for need in check.needs}
        return tuple(sorted(called - {self.id}))


@dataclass(frozen=True)
class Manifest:
    """All stages, in order."""

    stages: tuple[Stage, ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(check for stage in self.stages for check in stage.checks)

    @property
    def stub_ids(self) -> tuple[str, ...]:
        """Ids of the student's tasks: those checks that name themselves among their `needs`."""
        return tuple(check.id for check in self.checks if check.id in check.needs)

    def stage(self, name: str | int) -> Stage:
        """The stage called `s03`, `3` or `03`; raises ManifestError, which lists the stages, when there is none."""
        match = re.fullmatch(r"s?(\d{1,3})", str(name))
        for stage in self.stages:
            if match and stage.number == int(match[1]):
                return stage
        raise ManifestError(f"There is no stage {str(name)!r}; the stages are {join_names(s.id for s in self.stages)}.")

    def check(self, check_id: str) -> Check:
        """The check of this id; raises ManifestError, which lists the checks of its stage, when there is none."""
        for check in self.checks:
            if check.id == check_id:
                return check
        stage = self.stage(check_id.partition(".")[0])
        known = join_names(check.id for check in stage.checks)
        raise ManifestError(f"There is no check {check_id!r}; the checks of stage {stage.id} are {known}.")

    def select(self, stages: Sequence[str | int] = (), checks: Sequence[str] = ()) -> list[tuple[Stage, list[Check]]]:
        """What to grade, in order: the named checks, and whole the named stages of which no check is named.

        Everything when nothing is named; raises ManifestError for a name that the manifest does not have.
        """
        wanted = {self.check(check_id).id for check_id in checks}
        narrowed = {self.check(check_id).stage for check_id in checks}
        whole = [self.stage(name) for name in stages] if stages or checks else self.stages
        wanted |= {check.id for stage in whole if stage.id not in narrowed for check in stage.checks}
        plan = [(stage, [check for check in stage.checks if check.id in wanted]) for stage in self.stages]
        return [(stage, chosen) for stage, chosen in plan if chosen]

    def select_for_model(
        self, stages: Sequence[str | int] = (), checks: Sequence[str] = ()
    ) -> list[tuple[Stage, list[Check]]]:
        """As `select`, of the checks that can run on any model; raises ManifestError also when none is left."""
        plan = [(stage, [c for c in chosen if c.any_model]) for stage, chosen in self.select(stages, checks)]
        plan = [(stage, chosen) for stage, chosen in plan if chosen]
        if not plan:
            able = join_names(check.id for check in self.checks if check.any_model)
            raise ManifestError(f"None of these checks runs on another model than tiny; those that do are {able}.")
        return plan

    def files(self) -> tuple[str, ...]:
        """The engine files to take from a submission, each once."""
        return tuple(dict.fromkeys(file for stage in self.stages for file in stage.files))


def load_manifest(path: Path = MANIFEST) -> Manifest:
    """The validated manifest; raises ManifestError naming the file and the fault."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return parse_manifest(document)
    except OSError as error:
        raise ManifestError(f"The manifest {path.name} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"The manifest {path.name} is not UTF-8 text.") from error
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(f"The manifest {path.name} is not valid TOML: {error}.") from error
    except ManifestError as error:
        raise ManifestError(f"The manifest {path.name} is wrong: {error}") from error


def parse_manifest(document: dict[str, Any]) -> Manifest:
    """The manifest of a parsed TOML document; raises ManifestError."""
    head = _read(document, "the head of the file", _HEAD)
    needs: Needs = {}
    stages = tuple(_parse_stage(table, head["deadline"], needs) for table in head["stage"])
    _rule(bool(stages), "it has no stage; add a [[stage]] table.")
    _refuse_duplicates((stage.id for stage in stages), "stage")
    numbers = [stage.number for stage in stages]
    _rule(numbers == sorted(numbers), "the stages are out of order; sort them by their ids.")
    return Manifest(stages)


def _parse_stage(table: Any, deadline: float, needs: Needs) -> Stage:
    """The stage of a table; what its tasks need is added to `needs`."""
    where = _name(table, "stage") or "a [[stage]] without id"
    values = _read(table, where, _STAGE, deadline=deadline, task=[])
    _rule(bool(re.fullmatch(r"s\d\d", values["id"])), f"{where}: the id must be s and two digits, as in s03.")
    deadline = values.pop("deadline")
    tasks = [_add_task(entry, values["id"], needs) for entry in values.pop("task")]
    _refuse_duplicates(tasks, "task")
    checks = tuple(_parse_check(entry, values["id"], deadline, needs) for entry in values.pop("check"))
    stage = Stage(checks=checks, **values)
    handout = rf"{stage.id[1:]}-[a-z0-9-]+\.md"
    _rule(
        bool(re.fullmatch(handout, stage.handout)),
        f"{where}: handout is {stage.handout!r}; it must be named like {stage.id[1:]}-name.md.",
    )
    for file in stage.files:
        _check_file(file, where)
    _refuse_duplicates(stage.files, f"file of {where}")
    _check_numbering(stage, where)
    _check_tasks(tasks, stage)
    total = sum(check.points for check in checks)
    _rule(total == stage.points, f"{where} has {stage.points:g} points but its checks add up to {total:g}.")
    return stage


def _add_task(table: Any, stage_id: str, needs: Needs) -> str:
    """The id of the task of a table; what the task needs is added to `needs`."""
    where = _name(table, "task") or f"a task of stage {stage_id}"
    values = _read(table, where, _TASK, calls=[])
    task: str = values["id"]
    needs[task] = frozenset([task]).union(*(_needs_of(other, f"{where} calls", needs) for other in values["calls"]))
    return task


def _parse_check(table: Any, stage_id: str, deadline: float, needs: Needs) -> Check:
    where = _name(table, "check") or f"a check of stage {stage_id}"
    values = _read(table, where, _CHECK, runs=[], deadline=deadline, empty_repeat=False, any_model=False)
    _rule(
        bool(re.fullmatch(rf"{stage_id}\.[1-9]\d?", values["id"])),
        f"{where}: the id must be the stage's, a dot and a number, as in {stage_id}.1.",
    )
    runs = values.pop("runs")
    _rule(bool(runs), f"{where} runs no task; list those that it exercises in `runs`.")
    needed: frozenset[str] = frozenset().union(*(_needs_of(task, f"{where} runs", needs) for task in runs))
    return Check(needs=tuple(task for task in needs if task in needed), **values)


def _needs_of(task: str, named: str, needs: Needs) -> frozenset[str]:
    """What a task needs; raises when it is not one of those read so far, `named` says where it is named."""
    siblings = [other for other in needs if other.partition(".")[0] == task.partition(".")[0]]
    known = f"those of its stage are {join_names(siblings)}" if siblings else "its stage has none up to there"
    _rule(task in needs, f"{named} {task!r}, which is not a task that stands before it; {known}.")
    return needs[task]


def _name(table: Any, kind: str) -> str | None:
    return f"{kind} {table['id']}" if isinstance(table, dict) and "id" in table else None


def _read(table: Any, where: str, types: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """The values of a table, defaults filled in, lists of texts as tuples; raises unless keys and types are right."""
    _rule(isinstance(table, dict), f"{where} must be a table, [[stage]], [[stage.task]] or [[stage.check]].")
    for key in table:
        _rule(key in types, f"{where}: unknown key {key!r}; known are {join_names(types)}.")
    values = {**defaults, **table}
    for key, kind in types.items():
        _rule(key in values, f"{where}: `{key}` is missing.")
        value = values[key]
        names: dict[Any, str] = {str: "text", list: "a list", bool: "true or false", _NUMBER: "a number"}
        right = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        _rule(right, f"{where}: `{key}` is {value!r}; it must be {names[kind]}.")
        if key in ("files", "calls", "runs"):
            _rule(all(isinstance(text, str) for text in value), f"{where}: `{key}` must be a list of texts.")
            values[key] = tuple(value)
    points, deadline = values.get("points", 0), values.get("deadline", 1)
    _rule(
        points >= 0 and 2 * points % 1 == 0,
        f"{where}: `points` is {points}; it must be a multiple of 0.5 and not negative.",
    )
    _rule(0 < deadline < float("inf"), f"{where}: `deadline` is {deadline}; it must be a positive number of seconds.")
    return values


def _check_file(file: str, where: str) -> None:
    path = PurePosixPath(file)
    plain = not path.is_absolute() and ".." not in path.parts and "\\" not in file and str(path) == file
    _rule(plain, f"{where}: file {file!r} must be a plain path below the engine folder.")
    _rule(path.suffix in SUFFIXES, f"{where}: file {file!r} must end in one of {join_names(SUFFIXES)}.")


def _check_numbering(stage: Stage, where: str) -> None:
    _rule(bool(stage.checks), f"{where} has no check; add a [[stage.check]] table.")
    _refuse_duplicates((check.id for check in stage.checks), "check")
    for number, check in enumerate(stage.checks, 1):
        wanted = f"{stage.id}.{number}"
        _rule(check.id == wanted, f"{where}: check {check.id} stands where {wanted} should; number them 1, 2, 3 …")


def _check_tasks(tasks: Sequence[str], stage: Stage) -> None:
    needs = {check.id: check.needs for check in stage.checks}
    for task in tasks:
        _rule(task in needs, f"task {task}: stage {stage.id} has no check of this id, and a task is named after one.")
        _rule(task in needs[task], f"task {task}: check {task}, after which it is named, does not need it.")


def _rule(kept: bool, fault: str) -> None:
    if not kept:
        raise ManifestError(fault)


def _refuse_duplicates(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        _rule(name not in seen, f"{what} {name!r} occurs twice.")
        seen.add(name)
