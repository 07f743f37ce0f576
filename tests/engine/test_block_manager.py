"""The block manager against what its docstrings say, in any order of calls."""

import numpy as np
import pytest
from engine.block_manager import BlockManager
from given.requests import OutOfBlocks
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

SEQUENCES = st.integers(0, 5)
COUNTS = st.integers(0, 40)


class Blocks(RuleBasedStateMachine):
    """Remembers the length of each sequence, and every table as it was last seen."""

    @initialize(num_blocks=st.integers(1, 12), block_size=st.sampled_from([1, 2, 8, 16]))
    def begin(self, num_blocks: int, block_size: int) -> None:
        self.manager = BlockManager(num_blocks, block_size)
        self.num_blocks, self.block_size = num_blocks, block_size
        self.lengths: dict[int, int] = {}
        self.tables: dict[int, list[int]] = {}

    def blocks_of(self, length: int) -> int:
        return (length + self.block_size - 1) // self.block_size

    def used(self) -> int:
        return sum(self.blocks_of(length) for length in self.lengths.values())

    @rule(sequence=SEQUENCES, count=COUNTS)
    def allocate(self, sequence: int, count: int) -> None:
        if sequence in self.lengths:
            with pytest.raises(ValueError, match=f"sequence {sequence} "):
                self.manager.allocate(sequence, count)
        elif self.used() + self.blocks_of(count) > self.num_blocks:
            with pytest.raises(OutOfBlocks):
                self.manager.allocate(sequence, count)
        else:
            self.manager.allocate(sequence, count)
            self.lengths[sequence] = count

    @rule(sequence=SEQUENCES, count=COUNTS)
    def append(self, sequence: int, count: int) -> None:
        if sequence not in self.lengths:
            with pytest.raises(ValueError, match=f"sequence {sequence} "):
                self.manager.append(sequence, count)
            return
        length = self.lengths[sequence]
        if self.used() - self.blocks_of(length) + self.blocks_of(length + count) > self.num_blocks:
            with pytest.raises(OutOfBlocks):
                self.manager.append(sequence, count)
        else:
            self.manager.append(sequence, count)
            self.lengths[sequence] += count

    @rule(sequence=SEQUENCES)
    def append_one(self, sequence: int) -> None:
        self.append(sequence, 1)

    @rule(sequence=SEQUENCES)
    def free(self, sequence: int) -> None:
        if sequence in self.lengths:
            self.manager.free(sequence)
            del self.lengths[sequence], self.tables[sequence]
        with pytest.raises(ValueError, match=f"sequence {sequence} "):
            self.manager.free(sequence)

    @rule(sequence=SEQUENCES, start=st.integers(-1, 60))
    def map_slots(self, sequence: int, start: int) -> None:
        if sequence not in self.lengths or not 0 <= start <= self.lengths[sequence]:
            with pytest.raises(ValueError, match="sequence"):
                self.manager.slot_mapping(sequence, start)
            return
        rows = [block * self.block_size + row for block in self.tables[sequence] for row in range(self.block_size)]
        assert self.manager.slot_mapping(sequence, start) == rows[start : self.lengths[sequence]]

    @rule(sequence=SEQUENCES)
    def spoil_the_copy(self, sequence: int) -> None:
        if sequence in self.lengths:
            self.manager.block_table(sequence).append(-1)

    @rule()
    def all_tables_at_once(self) -> None:
        width = max(map(len, self.tables.values()), default=0) + 1
        rows = self.manager.tables(list(self.tables), width)
        assert (rows.dtype, rows.shape) == (np.int32, (len(self.tables), width))
        assert rows.tolist() == [table + [-1] * (width - len(table)) for table in self.tables.values()]

    @invariant()
    def no_block_is_lost_or_shared(self) -> None:
        tables = {sequence: self.manager.block_table(sequence) for sequence in self.lengths}
        held = [block for table in tables.values() for block in table]
        assert len(held) == len(set(held)) == self.used()
        assert set(held) <= set(range(self.num_blocks))
        assert self.manager.num_free() + len(held) == self.num_blocks
        for sequence, length in self.lengths.items():
            assert self.manager.num_tokens(sequence) == length
            assert len(tables[sequence]) == self.blocks_of(length)
            before = self.tables.get(sequence, [])
            assert tables[sequence][: len(before)] == before
        self.tables = tables


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(max_examples=200, stateful_step_count=40, deadline=None, database=None)


@pytest.mark.parametrize(("length", "blocks"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (31, 2), (32, 2), (33, 3)])
def test_boundaries(length: int, blocks: int) -> None:
    whole, piecewise = BlockManager(4, 16), BlockManager(4, 16)
    whole.allocate(3, length)
    piecewise.allocate(3, 0)
    for _ in range(length):
        piecewise.append(3)
    assert len(whole.block_table(3)) == len(piecewise.block_table(3)) == blocks


def test_negative_counts_and_empty_pools_are_refused() -> None:
    manager = BlockManager(2, 16)
    manager.allocate(0, 5)
    for refused in (lambda: manager.allocate(1, -1), lambda: manager.append(0, -1)):
        with pytest.raises(ValueError, match="-1"):
            refused()
    assert manager.num_free() == 1
    for sizes in ((0, 16), (4, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            BlockManager(*sizes)
