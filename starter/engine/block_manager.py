"""Who owns which block of the paged cache: a list of free blocks and one table per sequence.

Numbers alone: the memory of the blocks is the cache's, and no GPU is needed here. A sequence is an integer of the
caller's choice; position p of it is row p % block_size of block `block_table(sequence)[p // block_size]`.
"""


class BlockManager:
    """Hands out the blocks of a pool; a block is free or in exactly one table, never both."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """All of `num_blocks` blocks, of `block_size` tokens each, are free. ValueError unless both are at least 1."""
        # TODO s14.1: the free blocks, a table and a length per sequence
        raise NotImplementedError("s14.1")

    def allocate(self, sequence: int, num_tokens: int) -> None:
        """Begin a sequence of `num_tokens` tokens (0 or more) with as many blocks as they need.

        Raises ValueError for a sequence that has begun already or a negative number, and OutOfBlocks when too few
        blocks are free; then nothing has changed.
        """
        # TODO s14.1: refuse first, change afterwards
        raise NotImplementedError("s14.1")

    def append(self, sequence: int, count: int = 1) -> None:
        """Make room for `count` further tokens (0 or more): new blocks where the last one is full.

        Raises ValueError for an unknown sequence or a negative number, and OutOfBlocks when too few blocks are free;
        then nothing has changed.
        """
        # TODO s14.1: the new length decides how many blocks are needed, not the increment
        raise NotImplementedError("s14.1")

    def free(self, sequence: int) -> None:
        """Forget a sequence; its blocks are free again. Raises ValueError for an unknown one, also the second time."""
        # TODO s14.1: the table goes with the blocks
        raise NotImplementedError("s14.1")

    def block_table(self, sequence: int) -> list[int]:
        """The blocks of a sequence in the order of its positions, as a copy. Raises ValueError for an unknown one."""
        # TODO s14.1: a copy, so that a caller cannot change ours
        raise NotImplementedError("s14.1")

    def slot_mapping(self, sequence: int, start: int = 0) -> list[int]:
        """The rows block · block_size + offset of positions `start` … length − 1, in the pool seen as one list of rows.

        Raises ValueError for an unknown sequence, or a start below 0 or beyond the length.
        """
        # TODO s14.1: block of the position, row within it
        raise NotImplementedError("s14.1")

    def num_free(self) -> int:
        """How many blocks belong to no sequence."""
        # TODO s14.1: count them
        raise NotImplementedError("s14.1")

    def num_tokens(self, sequence: int) -> int:
        """The length of a sequence. Raises ValueError for an unknown one."""
        # TODO s14.1: look it up
        raise NotImplementedError("s14.1")
