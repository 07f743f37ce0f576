"""Caches of keys and values: as inputs of kernels, and as an object of a submission."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from given.config import LlamaConfig
from numpy.random import Generator

from grader import oracle
from grader.checking.api import BF16, Handle, OnDevice, Out, Worker, expect, require
from grader.checking.draws import Array, bf16

Layers = list[tuple[Array, Array]]
"""Keys and values [tokens, kv_heads, head_dim] of each layer of a model."""


def empty_cache(blocks: int, block_size: int, kv_heads: int, head_dim: int) -> Array:
    """[blocks, block_size, kv_heads, head_dim] bf16 in which nothing was written yet: all NaN."""
    return np.full((blocks, block_size, kv_heads, head_dim), np.nan, BF16)


def draw_rows(
    rng: Generator, blocks: int, length: int, contexts: Sequence[int], kv_heads: int, head_dim: int
) -> tuple[Array, Array, Array]:
    """(key_cache, value_cache, slots): a row of a contiguous cache for each context, in random order.

    All other rows, and what lies behind the contexts, are NaN.
    """
    slots = rng.permutation(blocks)[: len(contexts)].astype(np.int32)
    caches = [empty_cache(blocks, length, kv_heads, head_dim) for _ in range(2)]
    for cache in caches:
        for slot, context in zip(slots, contexts, strict=True):
            cache[slot, :context] = bf16(rng, context, kv_heads, head_dim)
    return caches[0], caches[1], slots


class Cache:
    """A submission's KVCache, without a model: what it stores is written by the submission's write_kv."""

    def __init__(self, worker: Worker, config: LlamaConfig, num_slots: int, max_length: int) -> None:
        self.worker, self.config, self.max_length = worker, config, max_length
        self.handle: Handle = worker.call("kv_cache.KVCache", config, num_slots, max_length, keep=True)

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self.worker.call(self.handle.method(method), *arguments, **options)

    def length(self, sequence: int) -> int:
        length = self.call("length", sequence)
        require(
            isinstance(length, int | np.integer), f"length must return an int, not {length!r:.60}.", "INCORRECT_DTYPE"
        )
        return int(length)

    def expect_lengths(self, lengths: Mapping[int, int], after: str) -> None:
        """Raise Failure, which says what happened before, unless each sequence has this many tokens."""
        for sequence, want in lengths.items():
            got = self.length(sequence)
            hint = "Refuse first, change afterwards." if "refused" in after else None
            require(got == want, f"{after}, and length({sequence}) is {got}; it must be {want}.", hint=hint)

    def arrays(self, layer: int) -> tuple[Handle, Handle]:
        """The arrays of keys and values of a layer, as they are on the device."""
        lists = [
            self.worker.call("builtins:getattr", self.handle, name, keep=True)
            for name in ("key_caches", "value_caches")
        ]
        keys, values = (self.worker.call(kept.method("__getitem__"), layer, keep=True) for kept in lists)
        return keys, values

    def store(self, rows: Mapping[int, list[tuple[Array, Array]]]) -> None:
        """Extend sequences by rows[sequence][layer] = keys and values [tokens, kv_heads, head_dim]."""
        counts = {sequence: len(layers[0][0]) for sequence, layers in rows.items()}
        slots = self.call("extend", counts)
        total = sum(counts.values())
        right = isinstance(slots, np.ndarray) and slots.dtype == np.int32 and slots.shape == (total,)
        told = f"extend({counts}) must return the rows of the {total} tokens, an int32 array [{total}]"
        require(right, f"{told}; it returned {_described(slots)}.", "INCORRECT_SHAPE")
        for layer in range(self.config.num_layers):
            k, v = (np.concatenate([layers[layer][part] for layers in rows.values()]) for part in (0, 1))
            self.worker.call("given.ops:write_kv", *self.arrays(layer), OnDevice(k), OnDevice(v), OnDevice(slots))

    def attend(self, layer: int, q: Array, sequences: Sequence[int], scale: float) -> Any:
        """The attention of q [B, heads, head_dim] to the tokens of these sequences."""
        tables = self.call("tables", list(sequences))
        right = isinstance(tables, np.ndarray) and tables.dtype == np.int32 and tables.shape[:1] == (len(sequences),)
        told = f"tables({list(sequences)}) must return an int32 array with a row for each slot"
        require(right, f"{told}; it returned {_described(tables)}.", "INCORRECT_DTYPE")
        lengths = np.array([self.length(sequence) for sequence in sequences], np.int32)
        return self.call("attend", layer, Out(q.shape), OnDevice(q), OnDevice(tables), OnDevice(lengths), scale)


def read_rows(cache: Cache, layer: int, sequence: int, length: int) -> tuple[Array, Array]:
    """Keys and values of a sequence, one row [kv_heads · head_dim] per token; Failure unless there are `length`."""
    pair = cache.call("read", layer, sequence)
    shape = (length, cache.config.num_kv_heads, cache.config.head_dim)
    right = isinstance(pair, tuple | list) and len(pair) == 2
    right = right and all(isinstance(array, np.ndarray) and array.shape == shape for array in pair)
    returned = " and ".join(map(_described, pair)) if isinstance(pair, tuple | list) else _described(pair)
    told = f"read({layer}, {sequence}) must return keys and values of shape {list(shape)}, for {length} tokens"
    require(right, f"{told}; it returned {returned}.", "INCORRECT_SHAPE")
    width = shape[1] * shape[2]
    return pair[0].reshape(length, width), pair[1].reshape(length, width)


def _described(value: Any) -> str:
    is_array = isinstance(value, np.ndarray)
    return f"an array {list(value.shape)} {value.dtype}" if is_array else f"{value!r:.60}"


class Contents:
    """A KVCache beside what was stored in it."""

    def __init__(self, cache: Cache, rng: Generator) -> None:
        self.cache, self.rng = cache, rng
        self.stored = {sequence: self._draw(0) for sequence in range(3)}

    @property
    def lengths(self) -> dict[int, int]:
        return {sequence: len(layers[0][0]) for sequence, layers in self.stored.items()}

    def expect_room(self, counts: dict[int, int]) -> None:
        """can_extend says whether these tokens fit, behind those that are stored."""
        ends = {sequence: self.lengths[sequence] + count for sequence, count in counts.items()}
        room = max(ends.values()) <= self.cache.max_length
        got = self.cache.call("can_extend", counts)
        then = " and ".join(f"slot {sequence} has {length}" for sequence, length in ends.items())
        told = f"can_extend({counts}) is {got!r:.60}; it must be {room}: max_length is {self.cache.max_length}, and"
        told += f" with these tokens {then}"
        require(isinstance(got, bool | np.bool_) and got == room, f"{told}.")

    def extend(self, counts: dict[int, int]) -> None:
        """Store random keys and values behind those that these sequences have."""
        new = {sequence: self._draw(count) for sequence, count in counts.items()}
        self.cache.store(new)
        for sequence, layers in new.items():
            both = zip(self.stored[sequence], layers, strict=True)
            self.stored[sequence] = [(np.concatenate([k, m]), np.concatenate([v, w])) for (k, v), (m, w) in both]

    def free(self, sequence: int) -> None:
        self.cache.call("free", sequence)
        self.stored[sequence] = self._draw(0)

    def expect(self) -> None:
        """Raise Failure unless the cache has the lengths, reads the values and attends to the tokens of the record."""
        for sequence, layers in self.stored.items():
            length = len(layers[0][0])
            self.cache.expect_lengths({sequence: length}, f"The slots were extended to {self.lengths}")
            self._expect_read(sequence, read_rows(self.cache, 1, sequence, length), layers[1])
        q = bf16(self.rng, 2, self.cache.config.num_heads, self.cache.config.head_dim, scale=4.0)
        out = self.cache.attend(2, q, (2, 0), 0.2)
        for row, sequence in enumerate((2, 0)):
            want = oracle.attention(q[row : row + 1], *self.stored[sequence][2], 0.2)
            expect(out[row : row + 1], want, f"out of sequence {sequence}")

    def _expect_read(self, sequence: int, got: tuple[Array, Array], want: tuple[Array, Array]) -> None:
        """The rows of layer 1 are those that were written; the message says which they are instead, if any others."""
        rows = [array.reshape(len(array), math.prod(array.shape[1:])) for array in want]
        for name, a, b in zip(("keys", "values"), got, rows, strict=True):
            for position in np.flatnonzero((a != b).any(axis=1))[:1]:
                told = f"read(1, {sequence}) does not return the {name} that were written at position {position}"
                require(False, f"{told}.", hint=self._origin(a[position]))

    def _origin(self, row: Array) -> str | None:
        """Where a row that was read stands in what was written."""
        if np.isnan(row.astype(np.float32)).all():
            return "It is NaN: nothing was written there."
        for sequence, layers in self.stored.items():
            for layer, pair in enumerate(layers):
                for name, array in zip(("keys", "values"), pair, strict=True):
                    for position in np.flatnonzero((array.reshape(len(array), len(row)) == row).all(axis=1))[:1]:
                        return f"These are the {name} of slot {sequence}, layer {layer}, position {position}."
        return None

    def _draw(self, tokens: int) -> Layers:
        shape = tokens, self.cache.config.num_kv_heads, self.cache.config.head_dim
        return [(bf16(self.rng, *shape), bf16(self.rng, *shape)) for _ in range(self.cache.config.num_layers)]
