"""Who owns which block of the paged cache: a list of free blocks and one table per sequence.

Numbers alone: the memory of the blocks is the cache's, and no GPU is needed here. A sequence is an integer of the
caller's choice; position p of it is row p % block_size of block `block_table(sequence)[p // block_size]`.
"""

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
        self._tables: dict[int, list[int]] = {}
        self._lengths: dict[int, int] = {}

    def allocate(self, sequence: int, num_tokens: int) -> None:
        """Begin a sequence of `num_tokens` tokens (0 or more) with as many blocks as they need.

        Raises ValueError for a sequence that has begun already or a negative number, and OutOfBlocks when too few
        blocks are free; then nothing has changed.
        """
        # s14.1: refuse first, change afterwards
        if sequence in self._tables:
            raise ValueError(f"sequence {sequence} has its blocks already; append to it, or free it first")
        blocks = self._take(num_tokens, 0, num_tokens)
        self._tables[sequence] = blocks
        self._lengths[sequence] = num_tokens

    def append(self, sequence: int, count: int = 1) -> None:
        """Make room for `count` further tokens (0 or more): new blocks where the last one is full.

        Raises ValueError for an unknown sequence or a negative number, and OutOfBlocks when too few blocks are free;
        then nothing has changed.
        """
        # s14.1: the new length decides how many blocks are needed, not the increment
        table = self._table(sequence)
        length = self._lengths[sequence]
        table += self._take(count, len(table), length + count)
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
        table, length = self._table(sequence), self._lengths[sequence]
        if not 0 <= start <= length:
            raise ValueError(f"start is {start}, but sequence {sequence} has the positions 0 to {length - 1}")
        size = self.block_size
        return [table[position // size] * size + position % size for position in range(start, length)]

    def num_free(self) -> int:
        """How many blocks belong to no sequence."""
        # s14.1: count them
        return len(self._free)

    def num_tokens(self, sequence: int) -> int:
        """The length of a sequence. Raises ValueError for an unknown one."""
        # s14.1: look it up
        self._table(sequence)
        return self._lengths[sequence]

    def _table(self, sequence: int) -> list[int]:
        if sequence not in self._tables:
            raise ValueError(f"sequence {sequence} is unknown: never allocated, or freed already")
        return self._tables[sequence]

    def _take(self, count: int, held: int, length: int) -> list[int]:
        """The blocks that a sequence of `held` blocks lacks when `count` more tokens make it `length` tokens long."""
        if count < 0:
            raise ValueError(f"a sequence cannot grow by {count} tokens")
        missing = -(-length // self.block_size) - held
        if missing > len(self._free):
            raise OutOfBlocks(f"{missing} blocks are needed and {len(self._free)} are free")
        return [self._free.pop() for _ in range(missing)]
