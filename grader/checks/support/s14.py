"""Drawn calls of a BlockManager, and a record of what it must have handed out."""

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st

from grader.checking.api import Handle, StudentError, Worker, require

SEQUENCES = range(3)
ANY = 9
"""A choice of this number leaves method and sequence as drawn, whether or not the call makes sense there."""
Call = tuple[str, int] | tuple[str, int, int]
"""The method and its arguments; the first is the sequence."""
NO_CALL = ""
"""The simplest choice, so that the smallest failing list is shorter than all that are drawn."""
_METHODS = (NO_CALL, "append", "append", "append", "allocate", "free")
_CHOICES = st.tuples(st.sampled_from(_METHODS), st.integers(0, ANY), st.integers(0, 12))


def _calls(choices: Sequence[tuple[str, int, int]]) -> list[Call]:
    """allocate begins a sequence that has not begun, append and free take one that has."""
    begun: set[int] = set()
    calls: list[Call] = []
    for method, choice, count in choices:
        if method == NO_CALL:
            continue
        fitting = list(SEQUENCES)
        if choice != ANY:
            if not begun:
                method = "allocate"
            elif len(begun) == len(SEQUENCES) and method == "allocate":
                method = "append"
            fitting = sorted(set(SEQUENCES) - begun if method == "allocate" else begun)
        sequence = fitting[choice % len(fitting)]
        if method == "free":
            begun.discard(sequence)
            calls.append((method, sequence))
        elif method == "allocate":
            begun.add(sequence)
            calls.append((method, sequence, count // 2))
        else:
            calls.append((method, sequence, count))
    return calls


CALLS = st.lists(_CHOICES, min_size=8, max_size=25).map(_calls)
"""Lists of up to 25 calls."""


class ManagedBlocks:
    """Makes a call of a BlockManager and compares its state with the record, after every call."""

    def __init__(self, worker: Worker, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self._worker = worker
        self._manager: Handle = worker.call("block_manager.BlockManager", num_blocks, block_size, keep=True)
        self._lengths: dict[int, int] = {}
        self._tables: dict[int, list[int]] = {}
        self._expect_state("BlockManager")

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self._worker.call(self._manager.method(method), *arguments, **options)

    def allocate(self, sequence: int, num_tokens: int) -> None:
        errors = ["ValueError"] if sequence in self._lengths or num_tokens < 0 else []
        if self._blocks(num_tokens) > self._free():
            errors.append("OutOfBlocks")
        if self._refused(errors, "allocate", sequence, num_tokens):
            return
        self._tables[sequence], self._lengths[sequence] = [], num_tokens
        self._expect_state(f"allocate({sequence}, {num_tokens})")

    def append(self, sequence: int, count: int) -> None:
        length = self._lengths.get(sequence)
        errors = ["ValueError"] if length is None or count < 0 else []
        if length is not None and self._blocks(length + count) - self._blocks(length) > self._free():
            errors.append("OutOfBlocks")
        if self._refused(errors, "append", sequence, count):
            return
        self._lengths[sequence] += count
        self._expect_state(f"append({sequence}, {count})")

    def free(self, sequence: int) -> None:
        if self._refused([] if sequence in self._lengths else ["ValueError"], "free", sequence):
            return
        del self._tables[sequence], self._lengths[sequence]
        self._expect_state(f"free({sequence})")

    def expect_slots(self, sequence: int, start: int) -> None:
        """slot_mapping names the rows of the positions from `start` on, in the blocks of the table."""
        table, size = self._tables[sequence], self.block_size
        want = [table[i // size] * size + i % size for i in range(start, self._lengths[sequence])]
        got = self.call("slot_mapping", sequence, start)
        shown = f"slot_mapping({sequence}, {start}) with the table {table} and {self._lengths[sequence]} tokens"
        require(_is_list_of_ints(got), f"{shown} is {got!r:.200}; it must be a list of ints.", "INCORRECT_DTYPE")
        require(got == want, f"{shown} is {got}; it must be {want}.")

    def _blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _free(self) -> int:
        return self.num_blocks - sum(self._blocks(length) for length in self._lengths.values())

    def _refused(self, errors: list[str], method: str, *arguments: int) -> bool:
        """Make the call. Where it must raise one of `errors`, whether it did; its state must be as before then."""
        called = f"{method}({', '.join(map(str, arguments))})"
        try:
            self.call(method, *arguments)
        except StudentError as raised:
            if not set(errors) & set(raised.type_names):
                raise
            self._expect_state(f"the refused {called}")
            return True
        require(not errors, f"{called} returned; it must raise {' or '.join(errors)}.")
        return False

    def _expect_state(self, after: str) -> None:
        """Free and used blocks are all blocks, none is in two tables, and tables only grow at their end."""
        free = self.call("num_free")
        require(free == self._free(), f"After {after} num_free() is {free}; {self._free()} blocks are free.")
        owner: dict[int, int] = {}
        for sequence, length in self._lengths.items():
            got = self.call("num_tokens", sequence)
            require(got == length, f"After {after} num_tokens({sequence}) is {got}; it must be {length}.")
            table = self.call("block_table", sequence)
            shown = f"After {after} block_table({sequence}) is {table}"
            require(_is_list_of_ints(table), f"{shown}; it must be a list of ints.", "INCORRECT_DTYPE")
            count = self._blocks(length)
            require(len(table) == count, f"{shown}; {length} tokens have {count} blocks of {self.block_size}.")
            before = self._tables[sequence][:count]
            require(table[: len(before)] == before, f"{shown}; it was {before}: blocks in use stay where they are.")
            for block in table:
                require(0 <= block < self.num_blocks, f"{shown}; blocks are 0 to {self.num_blocks - 1}.")
                require(block not in owner, f"{shown}; sequence {owner.get(block)} has block {block} already.")
                owner[block] = sequence
            self._tables[sequence] = table


def _is_list_of_ints(value: Any) -> bool:
    return isinstance(value, list) and all(type(entry) is int for entry in value)
