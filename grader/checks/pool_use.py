"""Whether what requests got at once could be held by the pool of blocks that the engine was given."""

from itertools import pairwise

from grader.checking.api import require
from grader.throughput import Observed
from grader.trace import Trace


def expect_pool_held(seen: Observed, trace: Trace, num_blocks: int, block_size: int = 16) -> None:
    """At no time did the requests that went on need more blocks than there are.

    Whoever gets a token in two steps in a row holds its prompt and its tokens but the newest between them. Those that
    end or pause are not counted, since they may give their blocks back within the step.
    """
    stored = {request.id: len(request.prompt) - 1 for request in trace}
    for number, (outputs, following) in enumerate(pairwise(seen.steps)):
        for name in outputs:
            stored[name] += 1
        going_on = [name for name in outputs if name in following]
        held = sum(-(-stored[name] // block_size) for name in going_on)
        told = (
            f"After step {number} {len(going_on)} requests went on, which hold {held} blocks of {block_size} tokens at "
            f"least; the pool has {num_blocks}. Where room is missing a request must be preempted, not memory added."
        )
        require(held <= num_blocks, told)
