"""Which requests get a token in a step: continuous batching, first come first served.

Owns the requests from their arrival to their end, and decides alone by their lengths and by what the cache says it has
room for; it launches nothing and needs no GPU.
"""

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
        # TODO s13.1: two queues, and the slots of the cache that are free
        raise NotImplementedError("s13.1")

    def add(self, request: Request) -> None:
        """A new request: it waits after all others."""
        # TODO s13.1: to the end of the queue
        raise NotImplementedError("s13.1")

    def schedule(self) -> tuple[list[Request], list[Request]]:
        """The requests that get a token in this step: (those to decode, those to prefill).

        All that were running decode; if the cache has no room for that, the last admitted are preempted until it has.
        Then the waiting are admitted, in order, as long as a slot, the cache and the token budget allow it. The
        room is only asked for here; the model takes it when it launches.
        """
        # TODO s13.1: the running first, then as many of the waiting as fit
        raise NotImplementedError("s13.1")

    def preempt(self) -> None:
        """Take the cache from the request admitted last. It keeps its tokens, waits in front of all others, and is
        prefilled over all of them when it is admitted again."""
        # TODO s16.2: recompute, not swap: only the request itself is kept
        raise NotImplementedError("s16.2")

    def remove(self, request: Request) -> None:
        """Forget a request that waits or runs: it has ended, or is not wanted any more."""
        # TODO s13.1: a running one gives back what it has
        raise NotImplementedError("s13.1")
