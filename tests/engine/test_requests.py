"""LLM and Scheduler over a fake model, in any order of requests, steps, aborts and failures."""

from pathlib import Path
from typing import Any

import pytest
from given.requests import OutOfBlocks, RequestTooLong, SamplingParams, StepOutput, UnknownRequest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.engine.fakes import LONGEST, VOCAB, stream_alone

TOKENS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0, 0, 0.7]),
    top_k=st.sampled_from([0, 5]),
    max_tokens=st.integers(1, 40),
    seed=st.integers(0, 3),
    ignore_eos=st.booleans(),
)
FAILURES = st.sampled_from([f"{moment} {kind}" for moment in ("before", "in") for kind in ("decode", "prefill")])
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


class Requests(RuleBasedStateMachine):
    """Knows of each unfinished request what it must answer and how much of that it has had."""

    llm_class: Any
    model_dir: Path

    @initialize(
        max_num_seqs=st.integers(1, 4),
        num_blocks=st.integers(1, 10),
        block_size=st.sampled_from([1, 4, 16]),
        budget=st.sampled_from([None, 1, 24]),
    )
    def begin(self, max_num_seqs: int, num_blocks: int, block_size: int, budget: int | None) -> None:
        self.llm = self.llm_class(
            str(self.model_dir),
            max_num_seqs=max_num_seqs,
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_batched_tokens=budget,
        )
        self.total, self.block_size, self.slots, self.budget = num_blocks, block_size, max_num_seqs, budget
        self.longest = min(LONGEST, num_blocks * block_size)
        self.wanted: dict[str, tuple[list[int], str]] = {}  # unfinished requests in order of arrival
        self.given: dict[str, int] = {}
        self.lengths: dict[str, int] = {}
        self.ended: list[str] = []
        self.steps = 0
        self.number = 0

    # --- what users do ---

    @rule(prompt=TOKENS, params=PARAMS, again=st.booleans())
    def add(self, prompt: list[int], params: SamplingParams, again: bool) -> None:
        name = self.ended.pop() if again and self.ended else f"request {self.number}"
        self.number += 1
        if len(prompt) >= self.longest:
            with pytest.raises(RequestTooLong):
                self.llm.add_request(name, prompt, params)
            return
        self.llm.add_request(name, prompt, params)
        self.wanted[name] = stream_alone(prompt, params, self.longest)
        self.given[name], self.lengths[name] = 0, len(prompt)

    @rule()
    def step(self) -> None:
        running = self.running()
        waiting = [name for name in self.wanted if name not in running]
        before = self.llm.stats()
        outputs = self.llm.step()
        preempted = self.llm.stats()["preemptions"] - before["preemptions"]
        kept = running[: len(running) - preempted]
        served = [output.request_id for output in outputs]
        # All that stay get a token; then come the waiting, the preempted before all others, none left out between.
        assert served == (kept + running[len(kept) :] + waiting)[: len(served)]
        assert len(served) >= len(kept)
        assert served or not self.wanted
        admitted = [self.lengths[name] for name in served[len(kept) :]]
        assert self.budget is None or len(admitted) < 2 or len(kept) + sum(admitted) <= self.budget
        self.steps += bool(served)
        for output in outputs:
            self.receive(output)

    def receive(self, output: StepOutput) -> None:
        tokens, reason = self.wanted[output.request_id]
        index = self.given[output.request_id]
        is_last = index + 1 == len(tokens)
        assert output == (output.request_id, tokens[index], reason if is_last else None)
        self.given[output.request_id] += 1
        self.lengths[output.request_id] += 1
        if is_last:
            self.forget(output.request_id)

    def forget(self, name: str) -> None:
        del self.wanted[name], self.given[name], self.lengths[name]
        self.ended.append(name)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.wanted)))
        self.llm.abort(name)
        self.forget(name)

    # --- what goes wrong ---

    @precondition(lambda self: self.ended)
    @rule()
    def abort_what_has_ended(self) -> None:
        with pytest.raises(UnknownRequest, match=self.ended[-1]):
            self.llm.abort(self.ended[-1])

    @precondition(lambda self: self.wanted)
    @rule(prompt=TOKENS)
    def add_twice(self, prompt: list[int]) -> None:
        with pytest.raises(ValueError, match="not finished"):
            self.llm.add_request(next(iter(self.wanted)), prompt, GREEDY)

    @rule(place=FAILURES, error=st.sampled_from([OutOfBlocks("none left"), RuntimeError("CUDA"), KeyboardInterrupt()]))
    def step_that_may_fail(self, place: str, error: BaseException) -> None:
        """It fails if it comes to that place. Then nothing was given, and all go on from the tokens they had."""
        self.llm.runner.fail = {place: error}
        try:
            self.step()
        except type(error):
            assert self.running() == []
        self.llm.runner.fail.clear()

    # --- what always holds ---

    def running(self) -> list[str]:
        return [request.id for request in self.llm.scheduler.running]

    @invariant()
    def nothing_is_lost(self) -> None:
        scheduler = self.llm.scheduler
        running, waiting = self.running(), [request.id for request in scheduler.waiting]
        assert running + waiting == list(self.wanted)
        assert len(running) <= self.slots
        stored = self.llm.cache.stored
        assert {request.slot: len(request.tokens) - 1 for request in scheduler.running} == {
            sequence: len(tokens) for sequence, tokens in stored.items()
        }
        used = sum(-(-len(tokens) // self.block_size) for tokens in stored.values())
        assert self.llm.stats() == {
            "running": len(running),
            "waiting": len(waiting),
            "preemptions": scheduler.num_preemptions,
            "steps": self.steps,
            "free_blocks": self.total - used,
            "total_blocks": self.total,
        }
        assert self.llm.has_unfinished_requests() == bool(self.wanted)

    def teardown(self) -> None:
        """All requests end, and soon: the oldest gets a token in every step."""
        if not hasattr(self, "llm"):
            return
        for _ in range(sum(len(tokens) - self.given[name] for name, (tokens, _) in self.wanted.items())):
            self.step()
            self.nothing_is_lost()
        assert not self.wanted
        assert self.llm.step() == []


def test_any_order(llm_class: Any, model_dir: Path) -> None:
    Requests.llm_class, Requests.model_dir = llm_class, model_dir
    run_state_machine_as_test(
        Requests, settings=settings(max_examples=200, stateful_step_count=40, deadline=None, database=None)
    )
