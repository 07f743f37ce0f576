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
ADVICE = {
    "OUT_OF_BOUNDS": r"Compare the index|Set `shared`|Pass an array|(Keep|Copy) the array|Compute it as long long",
    "MISALIGNED_ACCESS": r"use single elements",
    "DATA_RACE": r"__syncthreads\(\)|let one (block|thread) alone|use an atomic function",
    "UNINITIALISED_READ": r"Write all of it",
    "BARRIER_DIVERGENCE": r"out of the condition|call it before|skip the work|name only lanes|multiple of 32",
}
"""What to do about it."""


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


def lines(report: dict[str, Any]) -> set[int]:
    """Of both accesses; a thread that has returned is in no line."""
    return {place["line"] for place in places(report)} - {0}


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
    # Who reads too early may read what nobody has written: that is reported too, behind the race.
    assert outcome.reports[0]["verdict"] == bug.verdict, text
    consequences = {"UNINITIALISED_READ"} if bug.verdict == "DATA_RACE" else set()
    assert {report["verdict"] for report in outcome.reports} <= {bug.verdict} | consequences, text
    for report in outcome.reports:
        assert report["is_error"] != bug.is_remark, text
        assert report["kernel"] == bug.id, text
        assert report["count"] >= 1, text
        assert all(place["file"] == bug.file and is_inside(place, bug) for place in places(report)), text
        assert lines(report) <= bug.lines("1") | bug.lines("2") | bug.lines("also"), text
    check_first(bug, outcome)
    for order in ORDERS[1:] if outcome.error == "" and not bug.in_order else ():
        again = bench.run(bug.file, bug.wrong, order)
        assert again.reports, f"order {order}: nothing"
        assert again.reports[0]["verdict"] == bug.verdict, f"order {order}\n{shown(again)}"


def check_first(bug: Bug, outcome: Outcome) -> None:
    """The report of the bug itself names what the row says."""
    text, marked = shown(outcome), bug.lines("1") | bug.lines("2")
    own = [report for report in outcome.reports if report["verdict"] == bug.verdict and lines(report) & marked]
    if bug.verdict == "DATA_RACE":
        assert marked in [lines(report) for report in own], text
    report = own[0]
    access = report["access"]
    if bug.access:
        assert {place["kind"] for place in places(report)} <= bug.access, text
    assert bug.address in report["address"], text
    assert bug.address in report["message"], text
    assert bug.says in report["message"], text
    if bug.at:
        assert [access["block"], access["thread"]] == bug.at, text
    assert f"{bug.file}:{access['line']}: " in report["message"], text
    assert re.search(ADVICE[report["verdict"]], report["message"]), text


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
    assert {bug.verdict for bug in REPORTED} == ADVICE.keys()
    assert {bug.file for bug in BUGS} == {path.name for path in sources()}
