"""results.json, schema 1: the only record of a grading; every report is a function of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.manifest import Check, Stage

SCHEMA = 1
Plan = Sequence[tuple[Stage, Sequence[Check]]]


@dataclass(frozen=True)
class Record:
    """The outcome of one check. `points` is what was scored, `max` what could be; `seconds` is the wall time.

    Keys of `evidence` that reports know, each optional:
    `case` (text of the call), `drawn` (text of the shrunk example), `wrong` and `total` (counts), `first` and `worst`
    ({index, got, want, allowed}), `hint` (a sentence), `map` (counts of wrong values), `log` (compiler's or worker's
    last output), `stubs` ([{id, file, line}] to edit next, for NOT_IMPLEMENTED).
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
) -> dict[str, Any]:
    """The document of schema 1 for the planned checks; a check without a record scores 0 as NOT_RUN."""
    raise NotImplementedError


def write_results(results: Mapping[str, Any], path: Path) -> None:
    """Write the document so that a reader sees the old file or the new one, never a part."""
    raise NotImplementedError
