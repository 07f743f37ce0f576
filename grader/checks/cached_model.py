"""A submission's model with its cache: prefill and decode, and what these store."""

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from given.config import LlamaConfig

from grader.checking.api import BF16, Handle, Worker, expect_rows, require
from grader.checking.draws import Array
from grader.checks.caches import Cache, read_rows
from grader.oracle.model import FLOAT32, HUGGING_FACE_BF16, LlamaOracle, Operations, Reference


class CachedModel:
    """A submission's model with its KVCache."""

    def __init__(self, worker: Worker, folder: Path, config: LlamaConfig, num_slots: int, max_length: int) -> None:
        self.worker, self.config = worker, config
        self.model: Handle = worker.call("model.LlamaModel", str(folder), keep=True)
        self.cache = Cache(worker, config, num_slots, max_length)

    def prefill(self, ids: Sequence[int], sequence: int = 0) -> Array:
        """Logits [vocab_size] of the last token."""
        return self._logits("prefill", list(ids), self.cache.handle, sequence)

    def decode(self, token: int, sequence: int = 0) -> Array:
        """Logits [vocab_size] of the token."""
        return self._logits("decode", token, self.cache.handle, sequence)

    def walk(self, ids: Sequence[int], start: int, sequence: int = 0) -> Array:
        """Logits of tokens start − 1 … : a prefill of the first `start` tokens, then a decode of each further one."""
        return np.stack([self.prefill(ids[:start], sequence), *(self.decode(i, sequence) for i in ids[start:])])

    def prefill_batch(self, prompts: Sequence[Sequence[int]], sequences: Sequence[int] | None = None) -> Array:
        """Logits [B, vocab_size] of the last token of each prompt."""
        return self._logits("prefill_batch", [list(ids) for ids in prompts], self.cache.handle, sequences)

    def decode_batch(self, ids: Sequence[int], sequences: Sequence[int] | None = None) -> Array:
        """Logits [B, vocab_size] of one token of each sequence."""
        return self._logits("decode_batch", list(ids), self.cache.handle, sequences)

    def _logits(self, method: str, inputs: Any, *others: Any) -> Array:
        logits = self.worker.call(self.model.method(method), inputs, *others)
        shape = (*([len(inputs)] if method.endswith("batch") else []), self.config.vocab_size)
        right = isinstance(logits, np.ndarray) and logits.shape == shape
        require(right, f"{method} must return an array {list(shape)}, the logits.", "INCORRECT_SHAPE")
        return np.asarray(logits)


def expect_walk(model: CachedModel, reference: Reference, start: int, end: int, sequence: int = 0) -> None:
    """Prefill the first `start` tokens of a prompt, decode those up to `end`, and judge all logits.

    A reference may have the logits of a prompt's last tokens only; others are not judged then.
    """
    absent = len(reference.ids) - len(reference.float32.logits)
    begin = max(start - 1, absent)
    got = model.walk(reference.ids[:end].tolist(), start, sequence)[begin - (start - 1) :]
    rows = slice(begin - absent, max(end - absent, 0))
    expect_rows(got, reference.float32.logits[rows], reference.bf16.logits[rows])


def expect_stored(model: CachedModel, oracle: LlamaOracle, ids: Sequence[int], sequence: int = 0) -> None:
    """The cache holds the keys and values of all layers, rotated to their positions, and nothing else."""
    exact, rounded = (stored_rows(oracle, ids, operations) for operations in (FLOAT32, HUGGING_FACE_BF16))
    for layer, wanted in enumerate(zip(exact, rounded, strict=True)):
        read = read_rows(model.cache, layer, sequence, len(ids))
        for name, got, reference, bf16_reference in zip(("keys", "values"), read, *wanted, strict=True):
            expect_rows(got, reference, bf16_reference, f"{name} of layer {layer}", BF16)


def stored_rows(oracle: LlamaOracle, ids: Sequence[int], operations: Operations) -> list[tuple[Array, Array]]:
    """Keys and values of each layer as attention gets them, [tokens, kv_heads · head_dim]."""
    rows: list[tuple[Array, Array]] = []

    def attention(q: Array, k: Array, v: Array, scale: float) -> Array:
        rows.append((k.reshape(len(k), -1), v.reshape(len(v), -1)))
        return operations.attention(q, k, v, scale)

    watched = copy(operations)
    watched.attention = attention  # type: ignore[method-assign]
    oracle.forward(ids, watched)
    return rows
