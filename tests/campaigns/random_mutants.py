"""Random mutants: edits of the solutions, drawn by a seed; the public checks fail each that is not equivalent.

equivalent.toml lists the mutants that survive, each with its reason. A mutant is graded step by step, until a check
fails: the first checks of the stages that have its file, then their other checks; then, where a host module is not
known to be equivalent, the later stages that call it. These tell no more of a kernel: its own compare each number.
"""

import shutil
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from grader import KIT
from grader.manifest import Manifest, Stage, load_manifest
from tests.campaigns.campaign import Campaign, Key, Outcome
from tests.campaigns.drawing import all_mutants, draw
from tests.campaigns.edits import KINDS, Mutant
from tests.graded.grading import grade, verdicts
from tests.graded.mutants import NO_CATCH

SEED = 10
COUNT = 340
"""More than 300, since some do not compile."""
FIRST = 3
"""This many checks of a stage run first: most mutants fail one of them."""
LIMIT = 300
"""Characters of a message that are kept."""
EXPLANATIONS = KIT / "tests/campaigns/equivalent.toml"

MANIFEST = load_manifest()
POSSIBLE = {mutant.id: mutant for mutant in all_mutants(MANIFEST)}
DRAWN = {mutant.id: mutant for mutant in draw(list(POSSIBLE.values()), SEED, COUNT)}


class Explanation(NamedTuple):
    """Why a mutant survives."""

    id: str
    file: str
    code: str
    before: str
    after: str
    why: str
    """The reason; for a mutant that should be caught, the input that shows it."""


def run(key: Key, folder: Path) -> Outcome:
    name, seed = key
    mutant = DRAWN[name]
    submission = write(mutant, folder / "submission")
    owners = owners_of(mutant.file, MANIFEST)
    plan = own_steps(owners)
    if mutant.file.endswith(".py") and name not in explanations()[0]:
        plan += later_steps(owners, MANIFEST)
    graded = (judged(grade_checks(submission, checks, seed)) for checks in plan)
    outcome = next(filter(None, graded), {"result": "survived"})
    return description(mutant) | outcome | {"complaints": []}


def grade_checks(submission: Path, checks: list[str], seed: int) -> dict[str, Any]:
    """results.json of these checks; RuntimeError for a fault that is not the submission's."""
    selection = [word for check in checks for word in ("--check", check)]
    results = grade(submission, "--device", "cpu", "--seed", str(seed), *selection)
    if results["exit_code"] not in (0, 1):
        raise RuntimeError(f"exit code {results['exit_code']}: {results['output'][-LIMIT:]}")
    return results


def write(mutant: Mutant, submission: Path) -> Path:
    """Copy the solutions to `submission`, with this edit."""
    shutil.copytree(KIT / "solutions", submission)
    file = submission / "engine" / mutant.file
    file.write_text(mutant.edit.of(file.read_text(encoding="utf-8")), encoding="utf-8")
    return submission


def owners_of(file: str, manifest: Manifest) -> list[Stage]:
    """The stages that have a file."""
    return [stage for stage in manifest.stages if any(fnmatch(file, pattern) for pattern in stage.files)]


def own_steps(owners: list[Stage]) -> list[list[str]]:
    """The checks of these stages, in the order in which they are run."""
    checks = [_ids(stage) for stage in owners]
    return [step for ids in checks for step in (ids[:FIRST], ids[FIRST:])]


def later_steps(owners: list[Stage], manifest: Manifest) -> list[list[str]]:
    """The checks of each further stage that calls code of these."""
    names = {stage.id for stage in owners}
    return [_ids(s) for s in manifest.stages if s not in owners and names.intersection(s.requires)]


def judged(results: dict[str, Any]) -> Outcome:
    """The first check that failed, or that the mutant does not compile; {} when all passed."""
    found = verdicts(results)
    if "COMPILE_ERROR" in found.values():
        return {"result": "refused"}
    caught = next((check for check, verdict in found.items() if verdict not in NO_CATCH), None)
    if caught is None:
        return {}
    texts = {check["id"]: check["message"] for stage in results["stages"] for check in stage["checks"]}
    return {"result": "killed", "check": caught, "verdict": found[caught], "message": (texts[caught] or "")[:LIMIT]}


def description(mutant: Mutant) -> Outcome:
    return {
        "file": mutant.file,
        "line": mutant.line,
        "kind": mutant.edit.kind,
        "before": mutant.before,
        "after": mutant.edit.after,
        "code": mutant.code,
    }


def explanations(path: Path = EXPLANATIONS) -> tuple[dict[str, Explanation], dict[str, Explanation]]:
    """(equivalent mutants, those that a check should fail and does not), by id."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    equivalent, missed = (
        {row["id"]: Explanation(**row) for row in table.get(name, [])} for name in ("equivalent", "missed")
    )
    return equivalent, missed


def kill_rate(records: Iterable[Mapping[str, Any]], equivalent: Mapping[str, Explanation]) -> tuple[int, int]:
    """(killed mutants, those that are not equivalent) of the mutants that compile."""
    results = [r["result"] for r in records if r.get("result") != "refused" and r["row"] not in equivalent]
    return results.count("killed"), len(results)


def unexplained(records: Iterable[Mapping[str, Any]], explained: Iterable[str]) -> list[Mapping[str, Any]]:
    """The survivors that the table does not list."""
    return [r for r in records if r.get("result") == "survived" and r["row"] not in set(explained)]


def summary(records: list[Outcome]) -> list[str]:
    """Lines for the end of a run: how many were killed, of each stage and kind, and which survivors lack a reason."""
    equivalent, missed = explanations()
    graded = [record for record in records if "result" in record]
    results = Counter(record["result"] for record in graded)
    killed, of = kill_rate(graded, equivalent)
    lines = [
        f"{results['killed']} killed, {results['survived']} survived, {results['refused']} do not compile; "
        f"of those that are not equivalent {killed} of {of} were killed ({killed / max(of, 1):.1%})"
    ]
    for kind, text in KINDS.items():
        lines.append(_rate(f"{kind}: {text}", [r for r in graded if r["kind"] == kind], equivalent))
    for stage in MANIFEST.stages:
        lines.append(_rate(stage.id, [r for r in graded if owners_of(r["file"], MANIFEST)[0] == stage], equivalent))
    for record in unexplained(graded, [*equivalent, *missed]):
        edit = f"{record['before']!r} becomes {record['after']!r}"
        lines.append(f"no reason yet: {record['row']} {record['file']}:{record['line']} {record['kind']}: {edit}")
    return lines


def _rate(name: str, records: list[Outcome], equivalent: Mapping[str, Explanation]) -> str:
    killed, of = kill_rate(records, equivalent)
    return f"  {killed:3} of {of:3}  {name}"


def _ids(stage: Stage) -> list[str]:
    return [check.id for check in stage.checks]


CAMPAIGN = Campaign(
    name="random_mutants",
    keys=[(name, 0) for name in DRAWN],
    run=run,
    sources=("grader", "solutions", "reference_outputs"),
    summary=summary,
)
