"""Judges what an attention kernel requests of global memory, by exact counts."""

import math
from collections.abc import Sequence
from typing import Any

from grader.checking.api import BF16, Worker, require

LARGEST_SHARE = 1.1
"""How often a key or a value may be requested per query head, and an output stored."""


def expect_requested_once(emulator: Worker, op: str, arguments: Sequence[Any], rows: int) -> None:
    """Raise Failure unless keys and values (arguments 2 and 3) are requested about once per query head.

    `rows` is the number of keys, counted once for each query head. The output (argument 0) must be stored once.
    """
    out, q = arguments[0], arguments[1]
    counted = emulator.count(op, *arguments)
    allowed = LARGEST_SHARE * rows * q.shape[2] * BF16.itemsize
    for name, argument in (("keys", 2), ("values", 3)):
        requested, _ = counted.of(argument)
        require(
            requested <= allowed,
            f"{op} requests {requested:,} bytes of {name}; once per query head and {LARGEST_SHARE} times at most are "
            f"{allowed:,.0f}. Keep a tile in shared memory, for all of its queries.",
            "TOO_SLOW",
            figure=requested,
            threshold=allowed,
        )
    _, stored = counted.of(0)
    allowed = LARGEST_SHARE * math.prod(out.shape) * BF16.itemsize
    require(
        stored <= allowed,
        f"{op} stores {stored:,} bytes of out; {allowed:,.0f} are allowed: keep sums in registers, store them once.",
        "TOO_SLOW",
        figure=stored,
        threshold=allowed,
    )
