"""Wrong solutions, each one edit away from the reference: the rows of tests/mutants/sNN.toml.

A row stands in the file of the stage whose check must catch it.
"""

import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader import KIT
from grader.manifest import Manifest
from tests.graded.grading import failures, grade, hint, verdicts

TABLES = KIT / "tests" / "mutants"
NO_CATCH = {"PASSED", "NOT_RUN", "NOT_IMPLEMENTED", "SKIPPED"}


@dataclass(frozen=True)
class Mutant:
    """What a student might write, and the check that must catch it."""

    id: str
    """A name; `m…` are rows of the catalogue of real mistakes, the others are their relatives."""
    file: str
    """Path below solutions/engine/."""
    find: str
    """A text that occurs in the file exactly once."""
    replace: str
    """What `find` becomes."""
    check: str
    """Id of the check that must fail."""
    verdict: str
    """Verdict of that check."""
    hint: str
    """What the mistake is."""
    also: list[str] = field(default_factory=list)
    """Ids of further checks that must fail, whatever their verdict."""
    says: str = ""
    """Words of that check's message or hint."""
    more: list[list[str]] = field(default_factory=list)
    """Further edits of the file, each [find, replace], where one alone changes nothing."""

    @property
    def checks(self) -> list[str]:
        """All checks that must fail."""
        return [self.check, *self.also]

    @property
    def edits(self) -> list[list[str]]:
        """All edits, each [find, replace]."""
        return [[self.find, self.replace], *self.more]

    def write(self, submission: Path) -> Path:
        """Copy the solutions to `submission`, with these edits; their texts must occur exactly once."""
        shutil.copytree(KIT / "solutions", submission)
        file = submission / "engine" / self.file
        source = file.read_text()
        for find, replace in self.edits:
            assert source.count(find) == 1, f"{self.id}: {find!r} occurs {source.count(find)} times"
            source = source.replace(find, replace)
        file.write_text(source)
        return submission


def load_mutants() -> list[Mutant]:
    """All rows, in the order of the stages."""
    return [mutant for file in sorted(TABLES.glob("s*.toml")) for mutant in load_stage(file)]


def load_stage(file: Path) -> list[Mutant]:
    """The rows of one file; AssertionError when one names a check of another stage."""
    mutants = [Mutant(**row) for row in tomllib.loads(file.read_text())["mutant"]]
    for mutant in mutants:
        assert mutant.check.startswith(f"{file.stem}."), f"{mutant.id} is a row of {mutant.check}, not of {file.name}"
    return mutants


def earlier_checks(mutant: Mutant, manifest: Manifest) -> list[str]:
    """The checks of earlier stages that read the changed file; no other can see the difference."""
    stage_id = manifest.check(mutant.check).stage
    stages = [stage for stage in manifest.stages if stage.id < stage_id and mutant.file in stage.files]
    return [check.id for stage in stages for check in stage.checks]


def grade_mutant(mutant: Mutant, seed: str, submission: Path, further_checks: list[str]) -> dict[str, Any]:
    """results.json of the checks that must fail and of further ones; writes the mutant to `submission`."""
    mutant.write(submission)
    selection = [word for check in [*mutant.checks, *further_checks] for word in ("--check", check)]
    return grade(submission, "--device", "cpu", "--seed", seed, *selection)


def complaints(mutant: Mutant, results: dict[str, Any]) -> list[str]:
    """What is wrong when a mutant is not caught as its row says, by these checks and no other."""
    found, messages = verdicts(results), failures(results)
    wrong = []
    if found[mutant.check] != mutant.verdict:
        wrong.append(f"{mutant.check} must be {mutant.verdict} and is {messages.get(mutant.check, 'PASSED')}")
    if not messages.get(mutant.check, "").partition(": ")[2]:
        wrong.append(f"{mutant.check} fails without a message")
    if mutant.says not in (told := " ".join((messages.get(mutant.check, ""), hint(results, mutant.check)))):
        wrong.append(f"{mutant.check} must say {mutant.says!r} and says {told!r}")
    wrong += [f"{check} must fail and is {found[check]}" for check in mutant.also if found[check] in NO_CATCH]
    wrong += [f"{check} must pass and is {text}" for check, text in messages.items() if check not in mutant.checks]
    return wrong
