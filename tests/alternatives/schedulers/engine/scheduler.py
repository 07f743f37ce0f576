"""Another scheduler: the shortest prompt first, unless others have waited too long; who has least is preempted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from given.requests import SamplingParams


class Cache(Protocol):
    """What the scheduler asks of the cache."""

    num_slots: int

    def can_extend(self, counts: Mapping[int, int]) -> bool: ...

    def free(self, slot: int) -> None: ...


@dataclass(eq=False)
class Request:
    """One request; `slot` is its number in the cache while it runs."""

    id: str
    tokens: list[int]
    max_length: int
    params: SamplingParams
    generator: np.random.Generator
    slot: int | None = None
    overtaken: int = 0
    """How many requests that came later were admitted before it."""


class Scheduler:
    """`waiting` is in order of arrival, those that were preempted first."""

    def __init__(self, cache: Cache, max_num_batched_tokens: int, headroom: int) -> None:
        self.cache = cache
        self.max_num_batched_tokens = max_num_batched_tokens
        self.headroom = headroom
        self.waiting: list[Request] = []
        self.preempted: list[Request] = []
        self.running: list[Request] = []
        self.num_preemptions = 0

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def schedule(self) -> tuple[list[Request], list[Request]]:
        """(those to decode, those to prefill)."""
        while not self.cache.can_extend({request.slot: 1 for request in self.running}):
            self.preempt()
        decodes = list(self.running)
        admitted: list[Request] = []
        budget = self.max_num_batched_tokens - len(decodes)
        while self.waiting and len(self.running) < self.cache.num_slots:
            request = self._next()
            if (admitted and len(request.tokens) > budget) or not self._has_room(request, admitted):
                break
            for older in self.waiting[: self.waiting.index(request)]:
                older.overtaken += 1
            budget -= len(request.tokens)
            request.slot = self._unused()
            self.waiting.remove(request)
            self.running.append(request)
            admitted.append(request)
            if request in self.preempted:
                self.preempted.remove(request)
        return decodes, admitted

    def _next(self) -> Request:
        """A preempted request; one that was overtaken as often as there are slots; else the shortest."""
        aged = [request for request in self.waiting if request.overtaken >= self.cache.num_slots]
        return (self.preempted or aged or [min(self.waiting, key=lambda request: len(request.tokens))])[0]

    def _has_room(self, request: Request, admitted: list[Request]) -> bool:
        """Whether all that then run can grow for some steps."""
        demand = {other.slot: self._soon(other) for other in self.running if other not in admitted}
        demand |= {other.slot: len(other.tokens) + self._soon(other) - 1 for other in admitted}
        demand[self._unused()] = len(request.tokens) + self._soon(request) - 1
        return self.cache.can_extend(demand)

    def _soon(self, request: Request) -> int:
        return min(self.headroom, request.max_length - len(request.tokens))

    def _unused(self) -> int:
        """The highest number that no running request has."""
        return max(set(range(self.cache.num_slots)) - {request.slot for request in self.running})

    def preempt(self) -> None:
        """The running request with the fewest tokens waits again, before all that are new."""
        request = min(self.running, key=lambda request: len(request.tokens))
        self.remove(request)
        self.waiting.insert(0, request)
        self.preempted.append(request)
        self.num_preemptions += 1

    def remove(self, request: Request) -> None:
        """It has ended, or is not wanted any more."""
        if request in self.preempted:
            self.preempted.remove(request)
        if request.slot is None:
            self.waiting.remove(request)
            return
        self.cache.free(request.slot)
        self.running.remove(request)
        request.slot = None
