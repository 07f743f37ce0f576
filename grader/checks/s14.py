"""Stage 14: the manager of the paged cache's blocks."""

from functools import partial

import hypothesis.strategies as st

from grader.checking.api import Failure, Worker, check, expect_error, property_check, require
from grader.checks.support.s14 import CALLS, Call, ManagedBlocks

BOUNDARIES = (1, 15, 16, 17, 0, 31, 32, 33)


@check("s14.1")
def allocation(worker: Worker) -> None:
    """allocate gives a sequence as many blocks as its tokens need: 15, 16 and 17 of them, none, or a pool full."""
    for block_size in (16, 1, 8):
        blocks = ManagedBlocks(worker, 200, block_size)
        for sequence, tokens in enumerate(BOUNDARIES):
            blocks.allocate(sequence, tokens)
    blocks = ManagedBlocks(worker, 3, 16)
    blocks.allocate(7, 48)


@check("s14.2")
def growth(worker: Worker) -> None:
    """append takes a further block exactly when the last one is full, however many tokens come at once."""
    blocks = ManagedBlocks(worker, 30, 16)
    blocks.allocate(4, 0)
    blocks.allocate(9, 14)
    for _ in range(35):
        blocks.append(4, 1)
        blocks.append(9, 1)
    for count in (0, 15, 1, 0, 16, 17, 13, 40, 48, 18, 97):
        blocks.append(4, count)
    blocks.append(9, 0)
    blocks.call("append", 9)
    length = blocks.call("num_tokens", 9)
    told = f"After append(9) num_tokens(9) is {length}; it must be 50: without a count one token comes to the 49."
    require(length == 50, told)


@check("s14.3")
def reuse(worker: Worker) -> None:
    """The blocks of a freed sequence serve others, and a sequence that begins again has none of its old ones."""
    blocks = ManagedBlocks(worker, 6, 4)
    for round_ in range(4):
        blocks.allocate(0, 13)
        blocks.allocate(1, 5)
        blocks.free(round_ % 2)
        blocks.allocate(2, 3 if round_ % 2 else 9)
        blocks.free(1 - round_ % 2)
        blocks.allocate(0, 2)
        blocks.append(0, 3)
        blocks.free(2)
        blocks.free(0)
    blocks.allocate(5, 24)


@check("s14.4")
def out_of_blocks(worker: Worker) -> None:
    """Too few free blocks raise OutOfBlocks, leave everything as it was, and less may be asked for afterwards."""
    blocks = ManagedBlocks(worker, 5, 4)
    blocks.allocate(0, 21)
    blocks.allocate(0, 6)
    blocks.allocate(1, 13)
    blocks.append(0, 7)
    blocks.append(0, 6)
    blocks.allocate(1, 8)
    blocks.append(1, 1000)
    blocks.append(1, 4)
    blocks.append(0, 2)
    blocks.append(0, 1)
    blocks.allocate(2, 1)
    blocks.allocate(2, 0)
    blocks.free(0)
    blocks.append(1, 8)
    blocks.append(1, 1)


@check("s14.5")
def wrong_calls(worker: Worker) -> None:
    """Unknown sequences, freeing twice, beginning twice, numbers below 0 and an empty pool raise ValueError."""
    blocks = ManagedBlocks(worker, 8, 4)
    blocks.free(0)
    blocks.allocate(0, 5)
    blocks.allocate(0, 5)
    blocks.append(1, 1)
    blocks.allocate(1, -1)
    blocks.append(0, -1)
    blocks.free(0)
    blocks.free(0)
    blocks.append(0, 0)
    for method in ("block_table", "num_tokens", "slot_mapping"):
        for sequence, reason in ((0, "was freed"), (3, "never began")):
            called, because = f"{method}({sequence})", f"sequence {sequence} {reason}"
            expect_error(partial(blocks.call, method, sequence), "ValueError", called=called, because=because)
    for sizes in ((0, 16), (4, 0), (-1, 16), (4, -1)):
        make, because = (
            partial(worker.call, "block_manager.BlockManager", *sizes),
            "a pool has at least 1 block of 1 token",
        )
        expect_error(make, "ValueError", called=f"BlockManager{sizes}", because=because)
    ManagedBlocks(worker, 1, 1).allocate(0, 1)


@check("s14.6")
def slots(worker: Worker) -> None:
    """slot_mapping gives the rows of the positions from any start on, and block_table a copy."""
    blocks = ManagedBlocks(worker, 20, 16)
    for sequence, tokens in enumerate(BOUNDARIES):
        blocks.allocate(sequence, tokens)
    blocks.free(2)
    blocks.free(5)
    blocks.append(1, 30)
    for sequence, length in ((0, 1), (1, 45), (3, 17), (4, 0), (7, 33)):
        for start in sorted({0, length // 2, 15, 16, 17, length - 1, length}):
            if 0 <= start <= length:
                blocks.expect_slots(sequence, start)
        for start in (-1, length + 1):
            map_, because = partial(blocks.call, "slot_mapping", sequence, start), f"start is 0 to {length} here"
            expect_error(map_, "ValueError", called=f"slot_mapping({sequence}, {start})", because=because)
    blocks.expect_copied(7)
    blocks.append(7, 1)
    blocks.expect_slots(7, 0)


@check("s14.7")
@property_check(
    examples=60,
    num_blocks=st.integers(1, 20),
    block_size=st.integers(1, 5),
    operations=CALLS,
)
def property_of_operations(worker: Worker, num_blocks: int, block_size: int, operations: list[Call]) -> None:
    """After any calls free and used blocks are all blocks, none is in two tables, and refused calls change nothing."""
    blocks = ManagedBlocks(worker, num_blocks, block_size)
    try:
        for method, *arguments in operations:
            getattr(blocks, method)(*arguments)
    except Failure as failure:
        failure.evidence["drawn"] = ", ".join(blocks.calls)
        raise
