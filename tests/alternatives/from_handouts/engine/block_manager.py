"""An alternative solution: the free blocks in a heap, so that the lowest is handed out first."""

import heapq
from dataclasses import dataclass, field

from given.requests import OutOfBlocks


@dataclass
class _Sequence:
    """One sequence: its blocks in the order of its positions, and how many positions it has."""

    num_tokens: int = 0
    blocks: list[int] = field(default_factory=list)


class BlockManager:
    """Who owns which block of a pool."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """ValueError unless there is a block and a token in it."""
        if min(num_blocks, block_size) < 1:
            raise ValueError(f"{num_blocks} blocks of {block_size} tokens are no pool")
        self.block_size = block_size
        self._heap = list(range(num_blocks))  # in order, and so a heap already
        self._sequences: dict[int, _Sequence] = {}

    def allocate(self, sequence: int, num_tokens: int) -> None:
        """Begin a sequence. ValueError for a known one or a number below 0, OutOfBlocks; nothing changes then."""
        if sequence in self._sequences:
            raise ValueError(f"sequence {sequence} has begun before")
        new = _Sequence()
        self._grow(new, num_tokens)
        self._sequences[sequence] = new

    def append(self, sequence: int, count: int = 1) -> None:
        """Make it longer. ValueError for an unknown one or a number below 0, OutOfBlocks; nothing changes then."""
        self._grow(self._known(sequence), count)

    def free(self, sequence: int) -> None:
        """End a sequence. ValueError for an unknown one."""
        for block in self._known(sequence).blocks:
            heapq.heappush(self._heap, block)
        del self._sequences[sequence]

    def block_table(self, sequence: int) -> list[int]:
        """A copy of its blocks. ValueError for an unknown sequence."""
        return self._known(sequence).blocks.copy()

    def slot_mapping(self, sequence: int, start: int = 0) -> list[int]:
        """The rows of the positions from `start` on. ValueError for an unknown sequence or a start outside of it."""
        known = self._known(sequence)
        if start < 0 or start > known.num_tokens:
            raise ValueError(f"position {start} is outside of sequence {sequence}, which has {known.num_tokens}")
        size = self.block_size
        rows = [row for block in known.blocks for row in range(block * size, (block + 1) * size)]
        return rows[start : known.num_tokens]

    def num_free(self) -> int:
        """How many blocks nobody owns."""
        return len(self._heap)

    def num_tokens(self, sequence: int) -> int:
        """The length of a sequence. ValueError for an unknown one."""
        return self._known(sequence).num_tokens

    def _known(self, sequence: int) -> _Sequence:
        try:
            return self._sequences[sequence]
        except KeyError:
            raise ValueError(f"there is no sequence {sequence}") from None

    def _grow(self, sequence: _Sequence, count: int) -> None:
        if count < 0:
            raise ValueError(f"{count} tokens cannot be added")
        room = len(sequence.blocks) * self.block_size - sequence.num_tokens
        missing = max(0, count - room + self.block_size - 1) // self.block_size
        if missing > len(self._heap):
            raise OutOfBlocks(f"{missing} more blocks are wanted, but only {len(self._heap)} are free")
        sequence.blocks.extend(heapq.heappop(self._heap) for _ in range(missing))
        sequence.num_tokens += count
