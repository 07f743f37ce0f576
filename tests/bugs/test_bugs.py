"""Every seeded bug is reported as its row says, and of its right twin nothing is, in any order of the threads."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bugs.bugs import Bug, load_bugs, sources
from tests.bugs.emulated import Bench, Outcome

ORDERS = (0, 1, 12345)  # as they are numbered, reversed, random
BUGS = load_bugs()
REPORTED = [bug for bug in BUGS if bug.verdict]
DIFFERENT = [bug for bug in BUGS if bug.differs]
ADVICE = re.compile(
    r"\b(use|add|put|write|check|call|move|pass|let|give|make|guard|clear|set|synchroni[sz]e|launch)\b", re.I
)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def shown(outcome: Outcome) -> str:
    reports = [f"{r['verdict']}{'' if r['is_error'] else ' (remark)'}: {r['message']}" for r in outcome.reports]
    return "\n".join([*reports, outcome.error or "the launch ended without an error"])


def places(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [place for place in (report["access"], report["other"]) if place]


def is_inside(place: dict[str, Any], bug: Bug) -> bool:
    case = bug.wrong
    assert case is not None
    pairs = [*zip(place["block"], case.grid, strict=True), *zip(place["thread"], case.block, strict=True)]
    return all(0 <= index < size for index, size in pairs)


@pytest.mark.parametrize("bug", REPORTED, ids=[bug.id for bug in REPORTED])
def test_a_bug_is_reported(bug: Bug, bench: Bench) -> None:
    assert bug.wrong is not None
    outcome = bench.run(bug.file, bug.wrong)
    text = shown(outcome)
    assert outcome.reports, text
    assert {report["verdict"] for report in outcome.reports} == {bug.verdict}, text
    assert all(report["is_error"] != bug.is_remark for report in outcome.reports), text
    assert all(report["kernel"] == bug.id and report["count"] >= 1 for report in outcome.reports), text
    all_places = [place for report in outcome.reports for place in places(report)]
    assert {place["file"] for place in all_places} == {bug.file}, text
    assert all(is_inside(place, bug) for place in all_places), text
    marked = bug.lines("1") | bug.lines("2")
    seen = [{place["line"] for place in places(report)} for report in outcome.reports]
    assert set().union(*seen) <= marked | bug.lines("also"), text
    assert marked in seen if bug.verdict == "DATA_RACE" else any(lines & marked for lines in seen), text


@pytest.mark.parametrize("bug", REPORTED, ids=[bug.id for bug in REPORTED])
def test_a_report_names_what_it_is_about(bug: Bug, bench: Bench) -> None:
    assert bug.wrong is not None
    outcome = bench.run(bug.file, bug.wrong)
    text = shown(outcome)
    report = next(r for r in outcome.reports if {p["line"] for p in places(r)} & (bug.lines("1") | bug.lines("2")))
    access = report["access"]
    if bug.access:
        assert {place["kind"] for place in places(report)} <= bug.access, text
    if bug.address:
        assert report["address"] == bug.address or report["address"].startswith(f"{bug.address}["), text
        assert bug.address in report["message"], text
    if bug.at:
        assert [access["block"], access["thread"]] == bug.at, text
    assert f"{bug.file}:{access['line']}" in report["message"], text
    assert bug.id in report["message"], text
    assert ADVICE.search(report["message"].split(". ", 1)[-1]), text


@pytest.mark.parametrize("bug", BUGS, ids=[bug.id for bug in BUGS])
def test_nothing_is_reported_of_the_right_twin(bug: Bug, bench: Bench) -> None:
    for order in ORDERS:
        outcome = bench.run(bug.file, bug.right, order)
        assert (outcome.reports, outcome.error) == ([], ""), f"order {order}\n{shown(outcome)}"


@pytest.mark.parametrize("bug", DIFFERENT, ids=[bug.id for bug in DIFFERENT])
def test_orders_give_different_results(bug: Bug, bench: Bench) -> None:
    assert bug.wrong is not None
    wrong = [bench.run(bug.file, bug.wrong, order) for order in ORDERS]
    assert all(outcome.reports == [] and outcome.error == "" for outcome in wrong), shown(wrong[0])
    assert len({tuple(outcome.results) for outcome in wrong}) > 1
    right = [bench.run(bug.file, bug.right, order) for order in ORDERS]
    assert len({tuple(outcome.results) for outcome in right}) == 1


def test_the_list_is_long_enough() -> None:
    assert len(REPORTED) >= 80
    assert {bug.verdict for bug in REPORTED} == {
        "OUT_OF_BOUNDS", "MISALIGNED_ACCESS", "DATA_RACE", "UNINITIALISED_READ", "BARRIER_DIVERGENCE",
    }  # fmt: skip
    assert {bug.file for bug in BUGS} == {path.name for path in sources()}
