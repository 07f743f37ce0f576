"""The scheduler alone: who is admitted, who must wait, who is preempted. Its cache is a number of free positions."""

import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest
from engine.scheduler import Request, Scheduler
from given.requests import SamplingParams

from grader import KIT

HEADROOM = 16


class Positions:
    """A cache of this many positions, whichever slot they belong to."""

    def __init__(self, num_slots: int, positions: int) -> None:
        self.num_slots, self.positions = num_slots, positions
        self.lengths: dict[int, int] = {}

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        return sum(self.lengths.values()) + sum(counts.values()) <= self.positions

    def free(self, slot: int) -> None:
        self.lengths.pop(slot, None)


def request(name: str, length: int, new: int = 1) -> Request:
    return Request(name, [0] * length, length + new, SamplingParams(), np.random.default_rng())


def scheduler_with(*requests: Request, slots: int = 8, positions: int = 1000, budget: int = 1000) -> Scheduler:
    scheduler = Scheduler(Positions(slots, positions), budget, HEADROOM)
    for new in requests:
        scheduler.add(new)
    return scheduler


def step(scheduler: Scheduler) -> tuple[str, str]:
    """The names (one letter each) of those that decode and those that are prefilled; each gets a token."""
    cache = scheduler.cache
    assert isinstance(cache, Positions)
    decodes, prefills = scheduler.schedule()
    for one in decodes + prefills:
        assert one.slot is not None
        cache.lengths[one.slot] = len(one.tokens)
        one.tokens.append(0)
        if len(one.tokens) == one.max_length:
            scheduler.remove(one)
    return "".join(one.id for one in decodes), "".join(one.id for one in prefills)


def test_a_slot_is_taken_in_the_step_after_it_is_left() -> None:
    scheduler = scheduler_with(request("a", 3, 3), request("b", 3, 1), request("c", 3, 3), slots=2)
    assert [step(scheduler) for _ in range(5)] == [("", "ab"), ("a", "c"), ("ac", ""), ("c", ""), ("", "")]


def test_the_budget_counts_prompts_and_decodes() -> None:
    scheduler = scheduler_with(*(request(name, 4, 9) for name in "abcde"), budget=9)
    assert [step(scheduler) for _ in range(4)] == [("", "ab"), ("ab", "c"), ("abc", "d"), ("abcd", "e")]


def test_a_prompt_beyond_the_budget_is_admitted_first_or_not_at_all() -> None:
    scheduler = scheduler_with(request("a", 2, 3), request("b", 20, 3), request("c", 2, 3), budget=10)
    assert [step(scheduler) for _ in range(3)] == [("", "a"), ("a", "b"), ("ab", "c")]


def test_nobody_overtakes_a_request_that_does_not_fit_yet() -> None:
    scheduler = scheduler_with(request("a", 10, 3), request("b", 15), request("c", 1), positions=20)
    assert [step(scheduler) for _ in range(4)] == [("", "a"), ("a", ""), ("a", ""), ("", "bc")]


@pytest.mark.parametrize(("positions", "admitted"), [(2 * HEADROOM + 1, "a"), (2 * HEADROOM + 2, "ab")])
def test_admission_leaves_headroom_for_all_that_run(positions: int, admitted: str) -> None:
    """Of each request: a prompt of 2, which the first token follows, and HEADROOM − 1 more."""
    scheduler = scheduler_with(request("a", 2, 100), request("b", 2, 100), positions=positions)
    assert step(scheduler) == ("", admitted)


def test_headroom_is_no_more_than_what_is_still_to_come() -> None:
    scheduler = scheduler_with(request("a", 2, 3), request("b", 5, 1), positions=9)
    assert step(scheduler) == ("", "ab")


def test_the_last_admitted_is_preempted_and_comes_back_first() -> None:
    scheduler = scheduler_with(*(request(name, 4, 60) for name in "abc"), positions=64)
    assert step(scheduler) == ("", "abc")
    scheduler.add(request("d", 60, 1))
    decodes = [step(scheduler)[0] for _ in range(20)]
    assert decodes[16:18] == ["abc", "ab"]
    assert [waiting.id for waiting in scheduler.waiting] == ["c", "d"]
    assert scheduler.num_preemptions == 1
    assert len(scheduler.waiting[0].tokens) == 4 + 1 + 17


def test_an_admission_lasts() -> None:
    """Whoever is admitted gets HEADROOM tokens, or all of its own, before it is preempted."""
    rng = np.random.default_rng(0)
    waiting = [request(str(number), *rng.integers(1, 40, 2)) for number in range(200)]
    scheduler = scheduler_with(*waiting, positions=120)
    admitted: dict[Request, int] = {}
    while scheduler.running or scheduler.waiting:
        before = list(scheduler.running)
        step(scheduler)
        for one in before:
            if one.slot is None and len(one.tokens) < one.max_length:
                assert len(one.tokens) - admitted[one] >= HEADROOM
        for one in set(scheduler.running) - set(before):
            admitted[one] = len(one.tokens) - 1
    assert scheduler.num_preemptions > 3
    assert all(len(one.tokens) == one.max_length for one in waiting)


def test_no_gpu_is_needed() -> None:
    program = (
        "import sys; from grader.worker.main import load_package; from grader import KIT\n"
        "load_package('engine', KIT / 'solutions' / 'engine')\n"
        "import engine.scheduler, engine.block_manager; assert 'pycuda' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=KIT, check=True)
