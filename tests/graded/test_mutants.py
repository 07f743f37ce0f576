"""Every mutant of the solutions is caught by the check that its row names, and every scored check catches one.

Of the table few rows are run, by which each check is seen to fail once. With PAGEDLAB_ALL=1 all are, and no check of
an earlier stage fails; `make test-campaign` runs all under three seeds.
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from grader import KIT
from grader.manifest import load_manifest
from tests.graded.mutants import Mutant, complaints, earlier_checks, grade_mutant, load_mutants

EVERYTHING = bool(os.environ.get("PAGEDLAB_ALL"))
GRADINGS = int(os.environ.get("PAGEDLAB_GRADINGS", "2"))
"""How many run at a time."""

MANIFEST = load_manifest()
MUTANTS = load_mutants()


def few_for_all_checks(mutants: list[Mutant]) -> list[Mutant]:
    """Rows that together name every check that any row names, the row that adds most to them first."""
    missing = {check for mutant in mutants for check in mutant.checks}
    chosen = []
    while missing:
        chosen.append(max(mutants, key=lambda mutant: len(missing.intersection(mutant.checks))))
        missing.difference_update(chosen[-1].checks)
    return chosen


RUN = MUTANTS if EVERYTHING else few_for_all_checks(MUTANTS)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of each selected mutant by its id."""
    folder = tmp_path_factory.mktemp("mutants")
    drawn = [vars(item)["callspec"].params for item in request.session.items if "callspec" in vars(item)]
    chosen: list[Mutant] = [params["mutant"] for params in drawn if "mutant" in params]
    with ThreadPoolExecutor(GRADINGS) as pool:
        yield {
            mutant.id: pool.submit(
                grade_mutant, mutant, "0", folder / mutant.id, earlier_checks(mutant, MANIFEST) if EVERYTHING else []
            )
            for mutant in chosen
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("mutant", RUN, ids=[mutant.id for mutant in RUN])
def test_a_mutant_is_caught(mutant: Mutant, outcomes: "dict[str, Future[dict[str, Any]]]") -> None:
    assert complaints(mutant, outcomes[mutant.id].result()) == []


def test_every_scored_check_catches_a_mutant() -> None:
    caught = {check for mutant in MUTANTS for check in mutant.checks}
    assert [check.id for check in MANIFEST.checks if check.points and check.id not in caught] == []


def test_every_text_occurs_once() -> None:
    def count(mutant: Mutant, text: str) -> int:
        return (KIT / "solutions/engine" / mutant.file).read_text().count(text)

    assert [(m.id, find) for m in MUTANTS for find, _ in m.edits if count(m, find) != 1] == []


def test_ids_are_unique() -> None:
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS)
