"""Judges what an attention kernel requests of global memory, by exact counts."""

from collections.abc import Sequence
from typing import Any

from grader.checking import BF16, Worker, require

LARGEST_SHARE = 1.1
"""How often a key or a value may be requested per query head."""


def expect_requested_once(emulator: Worker, op: str, arguments: Sequence[Any], rows: int) -> None:
    """Raise Failure unless keys and values (arguments 2 and 3) are requested about once per query head.

    `rows` is the number of keys, counted once for each query head; and nothing but `out` is stored to: no scores.
    """
    q = arguments[1]
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
    other = counted.store_bytes - counted.of(0)[1]
    require(
        other == 0,
        f"{op} stores {other:,} bytes to global memory beside out: scores stay in registers and shared memory.",
        "TOO_SLOW",
        figure=other,
        threshold=0,
    )
