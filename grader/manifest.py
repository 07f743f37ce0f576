"""Loads grader/manifest.toml, the one source of stages, checks, points, files, dependencies and deadlines.

What is loaded is valid: every rule that the manifest must keep is tested here, and a broken one raises `ManifestError`
with the name of the stage or check and the remedy.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

MANIFEST = Path(__file__).resolve().parent / "manifest.toml"
KINDS = ("kernel", "host")
SUFFIXES = (".cu", ".py", ".toml")

_HEAD_KEYS = {"deadline", "stage"}
_STAGE_KEYS = {"id", "title", "handout", "kind", "points", "files", "requires", "check"}
_CHECK_KEYS = {"id", "points", "needs", "deadline"}


class ManifestError(ValueError):
    """The manifest is malformed, or a stage or check was asked for that it does not have."""


@dataclass(frozen=True)
class Check:
    """One graded check. `needs` are the stub ids it exercises; `deadline` is in seconds, for the whole check."""

    id: str
    points: float
    needs: tuple[str, ...]
    deadline: float

    @property
    def stage(self) -> str:
        """The id of the stage that it belongs to."""
        return self.id.partition(".")[0]


@dataclass(frozen=True)
class Stage:
    """One stage. `files` are paths below the engine folder; `requires` are the ids of the stages its code calls."""

    id: str
    title: str
    handout: str
    kind: str
    points: float
    files: tuple[str, ...]
    requires: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def number(self) -> int:
        return int(self.id[1:])


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
        """What to grade, in order: whole stages and single checks; everything when neither is named."""
        wanted = {check.id for name in stages for check in self.stage(name).checks}
        wanted |= {self.check(check_id).id for check_id in checks}
        if not stages and not checks:
            wanted = {check.id for check in self.checks}
        plan = [(stage, [check for check in stage.checks if check.id in wanted]) for stage in self.stages]
        return [(stage, chosen) for stage, chosen in plan if chosen]

    def files(self, stages: Iterable[Stage] | None = None) -> tuple[str, ...]:
        """The engine files to take from a submission, each once: those of the stages and of what these require."""
        chosen = self.stages if stages is None else self.with_required(stages)
        return tuple(dict.fromkeys(file for stage in chosen for file in stage.files))

    def with_required(self, stages: Iterable[Stage]) -> tuple[Stage, ...]:
        """The stages and, directly or not, all that they require, in the manifest's order."""
        wanted: set[str] = set()
        waiting = [stage.id for stage in stages]
        while waiting:
            stage = self.stage(waiting.pop())
            if stage.id not in wanted:
                wanted.add(stage.id)
                waiting.extend(stage.requires)
        return tuple(stage for stage in self.stages if stage.id in wanted)


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
    _refuse_unknown_keys(document, _HEAD_KEYS, "the head of the file")
    deadline = _positive(_get(document, "deadline", (int, float), "the head of the file"), "deadline", "the head")
    tables = _get(document, "stage", list, "the head of the file")
    stages = tuple(_parse_stage(table, deadline) for table in tables)
    if not stages:
        raise ManifestError("it has no stage; add a [[stage]] table.")
    _refuse_duplicates((stage.id for stage in stages), "stage")
    if [stage.number for stage in stages] != sorted(stage.number for stage in stages):
        raise ManifestError("the stages are out of order; sort them by their ids.")
    manifest = Manifest(stages)
    _check_requirements(manifest)
    _check_needs(manifest)
    return manifest


def _parse_stage(table: Any, deadline: float) -> Stage:
    where = f"stage {table['id']}" if isinstance(table, dict) and "id" in table else "a [[stage]] without id"
    if not isinstance(table, dict):
        raise ManifestError("every stage must be a [[stage]] table.")
    _refuse_unknown_keys(table, _STAGE_KEYS, where)
    stage_id = _get(table, "id", str, where)
    if not re.fullmatch(r"s\d\d", stage_id):
        raise ManifestError(f"{where}: the id must be s and two digits, as in s03.")
    checks = tuple(_parse_check(entry, stage_id, deadline) for entry in _get(table, "check", list, where))
    stage = Stage(
        id=stage_id,
        title=_get(table, "title", str, where),
        handout=_get(table, "handout", str, where),
        kind=_get(table, "kind", str, where),
        points=_points(_get(table, "points", (int, float), where), where),
        files=_strings(table, "files", where),
        requires=_strings(table, "requires", where),
        checks=checks,
    )
    _check_stage(stage, where)
    return stage


def _parse_check(table: Any, stage_id: str, deadline: float) -> Check:
    where = f"check {table['id']}" if isinstance(table, dict) and "id" in table else f"a check of stage {stage_id}"
    if not isinstance(table, dict):
        raise ManifestError(f"{where} must be a [[stage.check]] table.")
    _refuse_unknown_keys(table, _CHECK_KEYS, where)
    check_id = _get(table, "id", str, where)
    if not re.fullmatch(rf"{stage_id}\.[1-9]\d?", check_id):
        raise ManifestError(f"{where}: the id must be the stage's, a dot and a number, as in {stage_id}.1.")
    return Check(
        id=check_id,
        points=_points(_get(table, "points", (int, float), where), where),
        needs=_strings(table, "needs", where),
        deadline=_positive(_get(table, "deadline", (int, float), where, deadline), "deadline", where),
    )


def _check_stage(stage: Stage, where: str) -> None:
    """The rules of one stage that need no other."""
    if stage.kind not in KINDS:
        raise ManifestError(f"{where}: kind is {stage.kind!r}; it must be one of {join_names(KINDS)}.")
    if not re.fullmatch(rf"{stage.id[1:]}-[a-z0-9-]+\.md", stage.handout):
        raise ManifestError(f"{where}: handout is {stage.handout!r}; it must be named like {stage.id[1:]}-name.md.")
    if not stage.checks:
        raise ManifestError(f"{where} has no check; add a [[stage.check]] table.")
    for file in stage.files:
        _check_file(file, where)
    _refuse_duplicates(stage.files, f"file of {where}")
    _refuse_duplicates((check.id for check in stage.checks), "check")
    expected = [f"{stage.id}.{number}" for number in range(1, len(stage.checks) + 1)]
    for check, wanted in zip(stage.checks, expected, strict=True):
        if check.id != wanted:
            raise ManifestError(f"{where}: check {check.id} stands where {wanted} should; number the checks 1, 2, 3 …")
    total = sum(check.points for check in stage.checks)
    if total != stage.points:
        raise ManifestError(f"{where} has {stage.points:g} points but its checks add up to {total:g}.")


def _check_file(file: str, where: str) -> None:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or "\\" in file or str(path) != file:
        raise ManifestError(f"{where}: file {file!r} must be a plain path below the engine folder.")
    if path.suffix not in SUFFIXES:
        raise ManifestError(f"{where}: file {file!r} must end in one of {join_names(SUFFIXES)}.")


def _check_requirements(manifest: Manifest) -> None:
    known = {stage.id for stage in manifest.stages}
    for stage in manifest.stages:
        for required in stage.requires:
            if required not in known:
                raise ManifestError(f"stage {stage.id} requires stage {required!r}, which does not exist.")
            if required >= stage.id:
                raise ManifestError(f"stage {stage.id} requires {required}; only earlier stages can be required.")


def _check_needs(manifest: Manifest) -> None:
    stubs = set(manifest.stub_ids)
    for stage in manifest.stages:
        reachable = {required.id for required in manifest.with_required([stage])}
        for check in stage.checks:
            if not check.needs:
                raise ManifestError(f"check {check.id} needs no stub; list those that it exercises in `needs`.")
            for need in check.needs:
                _check_need(check, need, stubs, reachable)


def _check_need(check: Check, need: str, stubs: set[str], reachable: set[str]) -> None:
    if need not in stubs:
        raise ManifestError(
            f"check {check.id} needs {need!r}, which is no stub; a stub is a check that lists itself in `needs`."
        )
    if need.partition(".")[0] not in reachable:
        raise ManifestError(
            f"check {check.id} needs {need}, whose stage is not among those that stage {check.stage} requires."
        )


def _get(table: dict[str, Any], key: str, kind: Any, where: str, default: Any = None) -> Any:
    """The value of a key, of the wanted type; raises ManifestError when it is missing or of another type."""
    value = table.get(key, default)
    if value is None:
        raise ManifestError(f"{where}: `{key}` is missing.")
    if not isinstance(value, kind) or isinstance(value, bool):
        names = {str: "text", list: "a list"}
        raise ManifestError(f"{where}: `{key}` is {value!r}; it must be {names.get(kind, 'a number')}.")
    return value


def _strings(table: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = _get(table, key, list, where, [])
    if not all(isinstance(value, str) for value in values):
        raise ManifestError(f"{where}: `{key}` must be a list of texts.")
    return tuple(values)


def _points(value: float, where: str) -> float:
    if value < 0 or (2 * value) % 1 != 0:
        raise ManifestError(f"{where}: `points` is {value:g}; it must be a multiple of 0.5 and not negative.")
    return float(value)


def _positive(value: float, key: str, where: str) -> float:
    if not 0 < value < float("inf"):
        raise ManifestError(f"{where}: `{key}` is {value!r}; it must be a positive number of seconds.")
    return float(value)


def _refuse_unknown_keys(table: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ManifestError(f"{where}: unknown key {unknown[0]!r}; known are {join_names(sorted(known))}.")


def _refuse_duplicates(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ManifestError(f"{what} {name!r} occurs twice.")
        seen.add(name)


def join_names(names: Iterable[str]) -> str:
    """`a, b and c`."""
    *front, last = list(names)
    return f"{', '.join(front)} and {last}" if front else last
