"""Every mutant of the solutions is caught by the check that its row names, and every scored check catches one.

Of the rows, as many are run as show each check fail. With PAGEDLAB_ALL=1 all are, under three seeds, and
no check of an earlier stage fails.
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from grader.manifest import load_manifest
from tests.kit.grading import failures, grade, verdicts
from tests.kit.mutants import Mutant, load_mutants

EVERYTHING = bool(os.environ.get("PAGEDLAB_ALL"))
SEEDS = ("0", "1", "2") if EVERYTHING else ("0",)
PARALLEL = 2
NO_CATCH = {"PASSED", "NOT_RUN", "NOT_IMPLEMENTED", "SKIPPED"}

MANIFEST = load_manifest()
MUTANTS = load_mutants()


def one_for_each_check(mutants: list[Mutant]) -> list[Mutant]:
    """The rows that name a check which no row before them names."""
    named: set[str] = set()
    chosen = []
    for mutant in mutants:
        if not named.issuperset(mutant.checks):
            chosen.append(mutant)
            named.update(mutant.checks)
    return chosen


RUN = MUTANTS if EVERYTHING else one_for_each_check(MUTANTS)


def earlier_checks(mutant: Mutant) -> list[str]:
    """The checks of earlier stages that read the changed file; no other can see the difference."""
    stage_id = MANIFEST.check(mutant.check).stage
    stages = [stage for stage in MANIFEST.stages if stage.id < stage_id and mutant.file in stage.files]
    return [check.id for stage in stages for check in stage.checks]


def run(mutant: Mutant, seed: str, folder: Path) -> dict[str, Any]:
    submission = mutant.write(folder / f"{mutant.id}-{seed}")
    checks = mutant.checks + (earlier_checks(mutant) if EVERYTHING else [])
    selection = [word for check in checks for word in ("--check", check)]
    return grade(submission, "--device", "cpu", "--seed", seed, *selection)


Outcomes = dict[tuple[str, str], "Future[dict[str, Any]]"]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of each selected mutant and seed, two running at a time."""
    folder = tmp_path_factory.mktemp("mutants")
    drawn = [vars(item)["callspec"].params for item in request.session.items if "callspec" in vars(item)]
    chosen = [(params["mutant"], params["seed"]) for params in drawn if "mutant" in params]
    with ThreadPoolExecutor(PARALLEL) as pool:
        yield {(mutant.id, seed): pool.submit(run, mutant, seed, folder) for mutant, seed in chosen}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mutant", RUN, ids=[mutant.id for mutant in RUN])
def test_a_mutant_is_caught(mutant: Mutant, seed: str, outcomes: Outcomes) -> None:
    results = outcomes[mutant.id, seed].result()
    found, messages = verdicts(results), failures(results)
    assert found[mutant.check] == mutant.verdict, messages
    assert messages[mutant.check].partition(": ")[2], "it fails without a message"
    assert [check for check in mutant.also if found[check] in NO_CATCH] == [], messages
    assert {check for check in messages if check not in mutant.checks} == set(), messages


def test_every_scored_check_catches_a_mutant() -> None:
    caught = {check for mutant in MUTANTS for check in mutant.checks}
    assert [check.id for check in MANIFEST.checks if check.points and check.id not in caught] == []


def test_ids_are_unique() -> None:
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS)
