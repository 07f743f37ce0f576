"""Drawn calls of a BlockManager, and a record of what it must have handed out."""

from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st

from grader.checking.api import Failure, Handle, StudentError, Worker, as_sentence, require

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
        self.calls = [f"BlockManager({num_blocks}, {block_size})"]
        """The calls so far, as they are written in Python."""
        self._worker = worker
        self._manager: Handle = worker.call("block_manager.BlockManager", num_blocks, block_size, keep=True)
        self._lengths: dict[int, int] = {}
        self._tables: dict[int, list[int]] = {}
        self._free_before = num_blocks
        self._expect_state(self.calls[0])

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self._worker.call(self._manager.method(method), *arguments, **options)

    def allocate(self, sequence: int, num_tokens: int) -> None:
        errors = self._errors(num_tokens, 0)
        if sequence in self._lengths:
            errors["ValueError"] = f"sequence {sequence} has begun already"
        if self._refused(errors, "allocate", sequence, num_tokens):
            return
        self._tables[sequence], self._lengths[sequence] = [], num_tokens
        self._expect_state(self.calls[-1])

    def append(self, sequence: int, count: int) -> None:
        length = self._lengths.get(sequence)
        errors = self._unknown(sequence) if length is None else self._errors(count, length)
        if self._refused(errors, "append", sequence, count):
            return
        self._lengths[sequence] += count
        self._expect_state(self.calls[-1], count)

    def free(self, sequence: int) -> None:
        if self._refused(self._unknown(sequence), "free", sequence):
            return
        del self._tables[sequence], self._lengths[sequence]
        self._expect_state(self.calls[-1])

    def expect_slots(self, sequence: int, start: int) -> None:
        """slot_mapping names the rows of the positions from `start` on, in the blocks of the table."""
        table, size, positions = self._tables[sequence], self.block_size, range(start, self._lengths[sequence])
        want = [table[i // size] * size + i % size for i in positions]
        got = self.call("slot_mapping", sequence, start)
        shown = f"slot_mapping({sequence}, {start})"
        require(_is_list_of_ints(got), f"{shown} is {got!r:.200}; it must be a list of ints.", "INCORRECT_DTYPE")
        guesses = {
            "start is ignored: these are the rows from position 0 on.": len(got) > len(want) and got[start:] == want,
            "The position is added where its offset in the block, position % block_size, must be.": got
            == [table[i // size] * size + i for i in positions],
            "A block's number is to be multiplied by block_size.": got
            == [table[i // size] + i % size for i in positions],
            "These are positions in the sequence: its table says in which block each of them lies.": got
            == [*positions],
        }
        hint = _first_true(guesses)
        if len(got) != len(want):
            told = (
                f"{shown} has {_count(len(got), 'row')}; it must have {len(want)}, one for each position from {start}"
            )
            require(False, f"{told} to the last, {self._lengths[sequence] - 1}.", hint=hint)
        for i, row, right in zip(positions, got, want, strict=True):
            told = f"{shown} has the row {row} for position {i}; it must be {right}: row {i % size} of block"
            told += f" {table[i // size]}, by the table {table} and block_size {size}."
            require(row == right, told, hint=hint)

    def expect_copied(self, sequence: int) -> None:
        """A caller that empties the list from block_table does not change the table."""
        handed_out = self.call("block_table", sequence, keep=True)
        self._worker.call(handed_out.method("clear"))
        told = (
            f"The list from block_table({sequence}) was changed by the caller, and your table with it: return a copy."
        )
        require(self.call("block_table", sequence) == self._tables[sequence], told)

    def _blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _free(self) -> int:
        return self.num_blocks - sum(self._blocks(length) for length in self._lengths.values())

    def _unknown(self, sequence: int) -> dict[str, str]:
        return {} if sequence in self._lengths else {"ValueError": f"sequence {sequence} has not begun, or was freed"}

    def _errors(self, count: int, length: int) -> dict[str, str]:
        """The errors, with their reasons, of `count` further tokens for a sequence of `length`."""
        errors = {"ValueError": f"a sequence cannot grow by {count} tokens"} if count < 0 else {}
        needed = self._blocks(length + count) - self._blocks(length)
        if needed > self._free():
            errors["OutOfBlocks"] = f"{_count(needed, 'further block')} would be needed, and {self._free()} are free"
        return errors

    def _refused(self, errors: dict[str, str], method: str, *arguments: int) -> bool:
        """Make the call. Where it must raise one of `errors`, whether it did; its state must be as before then."""
        called = f"{method}({', '.join(map(str, arguments))})"
        due = " or ".join(f"{error}: {reason}" for error, reason in errors.items())
        self.calls.append(called)
        try:
            self.call(method, *arguments)
        except StudentError as raised:
            if not set(errors) & set(raised.type_names):
                raise self._another_error(raised, called, due) from None
            self._expect_state(f"the refused {called}")
            return True
        require(not errors, f"{called} returned; it must raise {due}.")
        return False

    def _another_error(self, raised: StudentError, called: str, due: str) -> Failure:
        """The failure for an error that must not come, or not this one; of a stub and the like what it is."""
        if raised.verdict != "RUNTIME_ERROR":
            return raised
        freed = called.startswith("allocate") and f"free({called[9:].partition(',')[0]})" in self.calls
        told = (
            f"{called} must {f'raise {due}' if due else 'succeed'}{', since the sequence was freed' if freed else ''}"
        )
        message = as_sentence(f"{told}. It raised {raised.message}")
        if called.startswith("allocate") and "ValueError" in raised.type_names and not due:
            message += self._shared()
        return Failure(raised.verdict, message, raised.evidence)

    def _shared(self) -> str:
        """A question, after a space, where a manager that was just made is not as new; "" otherwise."""
        is_new = len(self.calls) <= 2 and self._manager.number > 0
        return " The BlockManager is new, and not the first: do two managers share tables or blocks?" if is_new else ""

    def _wrong_count(self, after: str, free: int, appended: int) -> str | None:
        """What the number of free blocks says of how they were counted."""
        used, size, lengths = self.num_blocks - free, self.block_size, self._lengths.values()
        taken = self._free_before - free if appended else 0
        guesses = {
            "The refused call took blocks: look whether enough are free before you take one.": "refused" in after
            and free < self._free(),
            "One block was taken where several are due.": taken == 1 < self._free_before - self._free(),
            "None of its blocks came back.": after.startswith("free") and free == self._free_before,
            "length // block_size + 1 is one block too many where the last one is just full.": used
            == sum(length // size + 1 for length in lengths),
            "length // block_size rounds down; the last block counts also where it is not full.": used
            == sum(length // size for length in lengths),
            f"These are the blocks of {_count(appended, 'token')} alone: the new length decides, and the last block "
            "may have room.": 0 < taken == self._blocks(appended),
        }
        return _first_true(guesses) if lengths or after.startswith(("free", "the")) else None

    def _expect_state(self, after: str, appended: int = 0) -> None:
        """Free and used blocks are all blocks, none is in two tables, and tables only grow at their end."""
        free = self.call("num_free")
        if free != self._free():
            told = f"After {after} num_free() is {free}; it must be {self._free()}: {self._shown_blocks()}."
            require(False, told + self._shared(), hint=self._wrong_count(after, free, appended))
        self._free_before = free
        owner: dict[int, int] = {}
        for sequence, length in self._lengths.items():
            got = self.call("num_tokens", sequence)
            hint = (
                "The refused call changed the length: refuse first, change afterwards." if "refused" in after else None
            )
            require(got == length, f"After {after} num_tokens({sequence}) is {got}; it must be {length}.", hint=hint)
            table = self.call("block_table", sequence)
            self._expect_table(f"After {after} block_table({sequence}) is {table}", sequence, table)
            for block in table:
                told = (
                    f"After {after} block_table({sequence}) is {table}; sequence {owner.get(block)} has block {block}"
                )
                require(block not in owner, f"{told} already: a block is free or in one table.")
                owner[block] = sequence
            self._tables[sequence] = table

    def _expect_table(self, shown: str, sequence: int, table: Any) -> None:
        """One table: as many blocks as the tokens need, all of the pool, the earlier ones where they were."""
        require(_is_list_of_ints(table), f"{shown}; it must be a list of ints.", "INCORRECT_DTYPE")
        length = self._lengths[sequence]
        count = self._blocks(length)
        told = f"{shown}; it must have {_count(count, 'block')}, since a block holds {_count(self.block_size, 'token')}"
        require(len(table) == count, f"{told} and there are {length}.")
        before = self._tables[sequence][:count]
        require(table[: len(before)] == before, f"{shown}; it was {before}: blocks in use stay where they are.")
        outside = [block for block in table if not 0 <= block < self.num_blocks]
        require(not outside, f"{shown}; blocks are 0 to {self.num_blocks - 1}.")

    def _shown_blocks(self) -> str:
        """What the sequences need, in words."""
        needs = [
            f"{_count(self._blocks(length), 'block')} for the {_count(length, 'token')} of sequence {sequence}"
            for sequence, length in self._lengths.items()
        ]
        used = ", ".join(needs) or "no sequence has any"
        return f"the pool has {_count(self.num_blocks, 'block')} of {_count(self.block_size, 'token')}; {used}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _first_true(guesses: Mapping[str, bool]) -> str | None:
    return next((told for told, holds in guesses.items() if holds), None)


def _is_list_of_ints(value: Any) -> bool:
    return isinstance(value, list) and all(type(entry) is int for entry in value)
