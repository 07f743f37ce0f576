"""A submission's model with its cache: prefill and decode, what these store, and their work by exact counts."""

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from given.config import LlamaConfig

from grader.checking.api import BF16, Worker, expect_rows, require
from grader.checking.draws import Array
from grader.checks.support.caches import Cache, read_rows
from grader.model.weight_shapes import weight_shapes
from grader.observe.device_activity import DeviceActivity
from grader.oracle.llama import FLOAT32, HUGGING_FACE_BF16, LlamaOracle, Operations, Reference
from grader.throughput.workloads import new_runner
from grader.traces.drive import expect_at_most

SPARE_LAUNCHES = 2
"""Launches, products and copies that a batch may need beyond those of one sequence."""
SPARE_PRODUCTS = 1.05
"""How much more a model's products may be than the tokens need."""
SPARE_LOADS = 3
"""How often keys and values may be requested per query head: queries and sums may be read as often as those."""
OTHER_BYTES = 64
"""What all kernels but attention may load, and store, for a token: this many hidden states for each layer."""
LARGEST_COPY = 0.25
"""How much may be stored or copied besides, as a part of the keys and values of the context."""


class CachedModel:
    """A submission's runner of a model, with its KVCache."""

    def __init__(self, worker: Worker, folder: Path, config: LlamaConfig, num_slots: int, max_length: int) -> None:
        self.worker, self.config = worker, config
        self.runner = new_runner(worker, folder)
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
        logits = self.worker.call(self.runner.method(method), inputs, *others)
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


def expect_no_more(name: str, seen: DeviceActivity, than: str, other: DeviceActivity, spare: int = 0) -> None:
    """Raise Failure when a call needs more launches, products or copies than another one, and a few to spare."""
    for what in ("launches", "gemms", "copies", "device_copies"):
        told = f"{'products' if what == 'gemms' else what.replace('_', ' ')} in {name}"
        allowed = getattr(other, what) + spare
        expect_at_most(told, getattr(seen, what), allowed, f"{than} needs {getattr(other, what)}.")


def multiplications(config: LlamaConfig, tokens: int, rows: int) -> int:
    """What the products of `tokens` rows of every layer and `rows` of the head need."""
    layers = sum(np.prod(s) for n, s in weight_shapes(config).items() if n.startswith("model.layers") and len(s) == 2)
    return tokens * int(layers) + rows * config.vocab_size * config.hidden_size


def expect_products(name: str, seen: DeviceActivity, config: LlamaConfig, tokens: int, rows: int) -> None:
    """Raise Failure unless products are as large as `tokens` rows of every layer and `rows` of the head need."""
    needed = multiplications(config, tokens, rows)
    done = sum(call.m * call.n * call.k for call in seen.gemm_calls)
    told = f"{name} makes {done:,} multiplications in matrix products; {needed:,} are needed, by linear.py."
    require(done >= needed, told, "RUNTIME_ERROR", figure=done, threshold=needed)
    advice = f"{tokens} tokens need them in the layers and {rows} rows of logits in the head, no others."
    expect_at_most(f"multiplications in the products of {name}", done, int(SPARE_PRODUCTS * needed), advice)


def expect_decode_bytes(config: LlamaConfig, seen: dict[int, DeviceActivity]) -> None:
    """Raise Failure unless decode reads each context's keys and values about once per query head, and copies none.

    `seen` has a counted call for each context.
    """
    per_token = 2 * config.num_layers * config.head_dim * BF16.itemsize  # keys and values of one head
    others = OTHER_BYTES * (config.num_layers + 1) * config.hidden_size * BF16.itemsize
    for context, observed in seen.items():
        named = f"in decode at a context of {context}"
        counters = [kernel.counters for kernel in observed.kernels]
        allowed = SPARE_LOADS * context * per_token * config.num_heads + others
        advice = "Attention reads the keys and values of the context, and nothing behind it."
        expect_at_most(f"bytes loaded {named}", sum(each.load_bytes for each in counters), allowed, advice)
        advice = "Keys and values stay where they are; a step adds one row to them."
        moved = LARGEST_COPY * context * per_token * config.num_kv_heads + others
        expect_at_most(f"bytes stored {named}", sum(each.store_bytes for each in counters), moved, advice)
        copied = observed.bytes_to_device + observed.bytes_to_host
        expect_at_most(f"bytes copied to and from the host {named}", copied, moved, advice)
