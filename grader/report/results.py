"""results.json, schema 1: the only record of a grading; every report is a function of it."""

import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from grader.failure import NO_ANSWER, VERDICTS
from grader.manifest import Check, Stage
from grader.model import GRADED_MODEL
from grader.text import clean, clean_line

SCHEMA = 1
LARGEST_EVIDENCE = 64 * 1024
"""Bytes of one check's evidence as JSON."""

Plan = Sequence[tuple[Stage, Sequence[Check]]]


@dataclass(frozen=True)
class Record:
    """The outcome of one check. `points` is what was scored, `max` what could be; `seconds` is the wall time.

    Keys of `evidence` that reports know, each optional: `case` (text of the call), `drawn` (text of the shrunk
    example), `wrong` and `total` (counts), `first` and `worst` ({name, index, got, want, allowed}, or for rows {name,
    index, error, allowed}), `hint` (a sentence), `map` ({rows, columns, counts}), `log` (what the compiler or the
    worker printed), `stubs` ([{id, file, line}] to edit next, below the engine folder), `remarks` (sentences that cost
    no points).
    """

    id: str
    title: str
    points: float
    max: float
    verdict: str
    message: str = ""
    seconds: float = 0.0
    repro: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"check {self.id}: {self.verdict!r} is no verdict")
        if not 0 <= self.points <= self.max or (self.points and self.verdict != "PASSED"):
            raise ValueError(f"check {self.id}: {self.verdict} cannot score {self.points} of {self.max} points")


def build_results(
    plan: Plan,
    records: Iterable[Record],
    *,
    kit: str,
    submission: str,
    device: Mapping[str, str],
    confinement: str,
    seed: int,
    mode: str = "public",
    model: str = GRADED_MODEL,
) -> dict[str, Any]:
    """The document of schema 1 for the planned checks, ready for JSON.

    A planned check without a record scores 0 as NOT_RUN; the maxima come from the plan alone. `device` is
    {"kind": "cpu" | "gpu", "name": text}.
    """
    by_id = {record.id: record for record in records}
    stages = [_stage_result(stage, checks, by_id) for stage, checks in plan]
    return {
        "schema": SCHEMA,
        "kit": kit,
        "submission": clean_line(submission),
        "device": {key: clean_line(value) for key, value in device.items()},
        "confinement": confinement,
        "seed": seed,
        "mode": mode,
        "model": clean_line(model),
        "total": sum(stage["points"] for stage in stages),
        "max": sum(stage["max"] for stage in stages),
        "stages": stages,
    }


def stage_status(verdicts: Sequence[str]) -> str:
    """One word for a stage: FAILED when a check was tried and failed; PASSED when all passed; NOT_IMPLEMENTED, SKIPPED
    or NOT_RUN when none passed and none failed; INCOMPLETE when some passed and the others were not tried."""
    if any(verdict != "PASSED" and verdict not in NO_ANSWER for verdict in verdicts):
        return "FAILED"
    if all(verdict == "PASSED" for verdict in verdicts):
        return "PASSED"
    if "PASSED" in verdicts:
        return "INCOMPLETE"
    return next(verdict for verdict in NO_ANSWER if verdict in verdicts)


def write_results(results: Mapping[str, Any], path: Path) -> None:
    """Write the document so that a reader sees the old file or the new one, never a part; raises OSError."""
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _stage_result(stage: Stage, checks: Sequence[Check], by_id: Mapping[str, Record]) -> dict[str, Any]:
    results = [_check_result(check, by_id.get(check.id)) for check in checks]
    return {
        "id": stage.id,
        "title": stage.title,
        "points": sum(result["points"] for result in results),
        "max": sum(check.points for check in checks),
        "status": stage_status([result["verdict"] for result in results]),
        "checks": results,
    }


def _check_result(check: Check, record: Record | None) -> dict[str, Any]:
    if record is None:
        record = Record(check.id, "", 0.0, check.points, "NOT_RUN", "The grading ended before this check.")
    if record.max != check.points:
        raise ValueError(f"check {check.id} is worth {check.points} points, its record says {record.max}")
    result = asdict(record)
    result["title"] = clean_line(record.title)
    result["message"] = clean(record.message)
    result["seconds"] = round(float(record.seconds), 3)
    result["evidence"] = bounded_evidence(record.evidence)
    return result


def bounded_evidence(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence as plain, clean JSON of at most 64 KB; the largest entries make way for a note of their size."""
    plain = {str(key): _plain(value) for key, value in evidence.items()}
    sizes = {key: len(json.dumps(value, ensure_ascii=False).encode()) for key, value in plain.items()}
    for key in sorted(sizes, key=lambda name: -sizes[name]):
        if len(json.dumps(plain, ensure_ascii=False).encode()) <= LARGEST_EVIDENCE:
            break
        plain[key] = f"left out: {sizes[key]} bytes"
    return plain


def _plain(value: Any, depth: int = 0) -> Any:
    """The value in JSON's types; text is cleaned, numbers that JSON lacks become text."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if depth < 8 and isinstance(value, Mapping):
        return {clean_line(key): _plain(entry, depth + 1) for key, entry in value.items()}
    if depth < 8 and isinstance(value, list | tuple):
        return [_plain(entry, depth + 1) for entry in value]
    return clean(value, 16_000)
