"""Who owns which block of the paged cache: a list of free blocks and one table per sequence.

Numbers alone: the memory of the blocks is the cache's, and no GPU is needed here. A sequence is an integer of the
caller's choice; position p of it is row p % block_size of block `block_table(sequence)[p // block_size]`.
"""

from array import array
from collections.abc import Sequence

import numpy as np
from given.requests import OutOfBlocks


class BlockManager:
    """Hands out the blocks of a pool; a block is free or in exactly one table, never both."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """All of `num_blocks` blocks, of `block_size` tokens each, are free. ValueError unless both are at least 1."""
        # s14.1: the free blocks, a table and a length per sequence
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool has at least 1 block of at least 1 token, not {num_blocks} of {block_size}")
        self.block_size = block_size
        self._free = list(reversed(range(num_blocks)))  # a stack: the block freed last is handed out first
        self._tables: dict[int, array[int]] = {}  # int32, so that `tables` copies bytes and converts no number
        self._lengths: dict[int, int] = {}

    def allocate(self, sequence: int, num_tokens: int) -> None:
        """Begin a sequence of `num_tokens` tokens (0 or more) with as many blocks as they need.

        Raises ValueError for a sequence that has begun already or a negative number, and OutOfBlocks when too few
        blocks are free; then nothing has changed.
        """
        # s14.1: refuse first, change afterwards
        if sequence in self._tables:
            raise ValueError(f"sequence {sequence} has its blocks already; append to it, or free it first")
        table = array("i")
        self._grow(table, 0, num_tokens)
        self._tables[sequence] = table
        self._lengths[sequence] = num_tokens

    def append(self, sequence: int, count: int = 1) -> None:
        """Make room for `count` further tokens (0 or more): new blocks where the last one is full.

        Raises ValueError for an unknown sequence or a negative number, and OutOfBlocks when too few blocks are free;
        then nothing has changed.
        """
        # s14.1: the new length decides how many blocks are needed, not the increment
        length = self.num_tokens(sequence)
        self._grow(self._tables[sequence], length, count)
        self._lengths[sequence] = length + count

    def free(self, sequence: int) -> None:
        """Forget a sequence; its blocks are free again. Raises ValueError for an unknown one, also the second time."""
        # s14.1: the table goes with the blocks
        self._free += reversed(self._table(sequence))
        del self._tables[sequence], self._lengths[sequence]

    def block_table(self, sequence: int) -> list[int]:
        """The blocks of a sequence in the order of its positions, as a copy. Raises ValueError for an unknown one."""
        # s14.1: a copy, so that a caller cannot change ours
        return list(self._table(sequence))

    def slot_mapping(self, sequence: int, start: int = 0) -> list[int]:
        """The rows block · block_size + offset of positions `start` … length − 1, in the pool seen as one list of rows.

        Raises ValueError for an unknown sequence, or a start below 0 or beyond the length.
        """
        # s14.1: block of the position, row within it
        length = self.num_tokens(sequence)
        if not 0 <= start <= length:
            raise ValueError(f"start is {start}, but sequence {sequence} has the positions 0 to {length - 1}")
        table, size = self._tables[sequence], self.block_size
        return [table[position // size] * size + position % size for position in range(start, length)]

    def num_free(self) -> int:
        """How many blocks belong to no sequence."""
        # s14.1: count them
        return len(self._free)

    def num_tokens(self, sequence: int) -> int:
        """The length of a sequence. Raises ValueError for an unknown one."""
        # s14.1: look it up
        try:
            return self._lengths[sequence]
        except KeyError:
            raise ValueError(f"sequence {sequence} is unknown: never allocated, or freed already") from None

    def tables(self, sequences: Sequence[int], width: int) -> np.ndarray:
        """The block tables of all these sequences: [B, width] int32, −1 after the blocks of each."""
        # −1 is four bytes of ff.
        rows = [self._table(sequence).tobytes().ljust(4 * width, b"\xff") for sequence in sequences]
        return np.frombuffer(b"".join(rows), np.int32).reshape(-1, width)

    def _table(self, sequence: int) -> "array[int]":
        self.num_tokens(sequence)  # raises for an unknown one
        return self._tables[sequence]

    def _grow(self, table: "array[int]", length: int, count: int) -> None:
        """Take the blocks that a table of `length` tokens lacks for `count` more."""
        if count < 0:
            raise ValueError(f"a sequence cannot grow by {count} tokens")
        missing = blocks_for(length + count, self.block_size) - len(table)
        if missing > len(self._free):
            raise OutOfBlocks(f"{missing} blocks are needed and {len(self._free)} are free")
        for _ in range(missing):
            table.append(self._free.pop())


def blocks_for(num_tokens: int, block_size: int) -> int:
    """How many blocks this many tokens fill, the last one perhaps in part."""
    return -(-num_tokens // block_size)
