"""Which requests get a token in a step: continuous batching, first come first served.

Owns the requests from their arrival to their end, and decides alone by their lengths and by what the cache says it has
room for; it launches nothing and needs no GPU.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from given.requests import SamplingParams


class Cache(Protocol):
    """What the scheduler asks of KVCache or PagedKVCache."""

    num_slots: int

    def can_extend(self, counts: Mapping[int, int]) -> bool: ...

    def free(self, slot: int) -> None: ...


@dataclass(eq=False)
class Request:
    """One request between its arrival and its end."""

    id: str
    tokens: list[int]
    """The prompt, then the new tokens; the cache holds all but the last of them while the request runs."""
    max_length: int
    """The request ends when `tokens` is this long: by max_tokens or by the longest context."""
    params: SamplingParams
    generator: np.random.Generator
    slot: int | None = None
    """Where the cache keeps its keys and values while it runs; None while it waits."""


class Scheduler:
    """The waiting and the running requests.

    A request only ever moves from the front of `waiting` to the end of `running`, and back the same way. So the running
    ones and then the waiting ones are in order of arrival at any time: none is overtaken, and the oldest request,
    which is never preempted as long as others run, always gets on.
    """

    def __init__(self, cache: Cache, max_num_batched_tokens: int, headroom: int) -> None:
        """`cache` has a slot for each running request. A step computes at most `max_num_batched_tokens` tokens, one
        for each decode and all of each prompt; but one prompt is admitted however long it is.

        A waiting request is admitted only if all that then run have room for `headroom` further tokens each, 1 at least
        (for fewer where they end before). Without it a request would come in and be preempted a step later, its prefill
        wasted.
        """
        # s13.1: two queues, and the slots of the cache that are free
        self.cache = cache
        self.max_num_batched_tokens = max_num_batched_tokens
        self.headroom = headroom
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.num_preemptions = 0
        self._free_slots = list(reversed(range(cache.num_slots)))

    def add(self, request: Request) -> None:
        """A new request: it waits after all others."""
        # s13.1: to the end of the queue
        self.waiting.append(request)

    def schedule(self) -> tuple[list[Request], list[Request]]:
        """The requests that get a token in this step: (those to decode, those to prefill).

        All that were running decode; if the cache has no room for that, the last admitted are preempted until it has.
        Then the waiting are admitted, in order, as long as a slot, the cache and the token budget allow it. The
        room is only asked for here; the model takes it when it launches.
        """
        # s13.1: the running first, then as many of the waiting as fit
        while not self.cache.can_extend({request.slot: 1 for request in self.running}):
            self.preempt()
        decodes = list(self.running)
        return decodes, self._admit()

    def _admit(self) -> list[Request]:
        """Move requests from waiting to running until the first that does not fit; they are to be prefilled."""
        admitted: list[Request] = []
        budget = self.max_num_batched_tokens - len(self.running)
        if not self.waiting or not self._free_slots:
            return admitted
        demand = {request.slot: self._tokens_soon(request) for request in self.running}
        while self.waiting and self._free_slots:
            request, slot = self.waiting[0], self._free_slots[-1]
            # A prefill stores all tokens; of those to come, the last one is never stored.
            demand[slot] = len(request.tokens) + self._tokens_soon(request) - 1
            if (admitted and len(request.tokens) > budget) or not self.cache.can_extend(demand):
                break
            budget -= len(request.tokens)
            request.slot = self._free_slots.pop()
            self.running.append(self.waiting.popleft())
            admitted.append(request)
        return admitted

    def _tokens_soon(self, request: Request) -> int:
        """How many of the next `headroom` tokens the request will still get."""
        return min(self.headroom, request.max_length - len(request.tokens))

    def preempt(self) -> None:
        """Take the cache from the request admitted last. It keeps its tokens, waits in front of all others, and is
        prefilled over all of them when it is admitted again."""
        # s16.2: recompute, not swap: only the request itself is kept
        request = self.running[-1]
        self.remove(request)
        self.waiting.appendleft(request)
        self.num_preemptions += 1

    def remove(self, request: Request) -> None:
        """Forget a request that waits or runs: it has ended, or is not wanted any more."""
        # s13.1: a running one gives back what it has
        if request.slot is None:
            self.waiting.remove(request)
            return
        self.cache.free(request.slot)
        self.running.remove(request)
        self._free_slots.append(request.slot)
        request.slot = None
