"""All mutants under three seeds: each is caught by its checks, and by no check of an earlier stage."""

from pathlib import Path

from grader.manifest import load_manifest
from tests.campaigns.campaign import Campaign, Key, Outcome
from tests.graded.grading import verdicts
from tests.graded.mutants import complaints, earlier_checks, grade_mutant, load_mutants

SEEDS = (0, 1, 2)

MANIFEST = load_manifest()
MUTANTS = {mutant.id: mutant for mutant in load_mutants()}


def run(key: Key, folder: Path) -> Outcome:
    name, seed = key
    mutant = MUTANTS[name]
    results = grade_mutant(mutant, str(seed), folder / "submission", earlier_checks(mutant, MANIFEST))
    found = verdicts(results)
    return {"verdicts": {check: found[check] for check in mutant.checks}, "complaints": complaints(mutant, results)}


CAMPAIGN = Campaign(
    name="mutants",
    keys=[(name, seed) for name in MUTANTS for seed in SEEDS],
    run=run,
    sources=("grader", "solutions", "reference_outputs", "tests/mutants", "tests/graded/mutants.py"),
)
