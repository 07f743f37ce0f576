"""Judges the work of single calls of prefill and decode, by exact counts of the emulated device."""

from collections.abc import Callable

import numpy as np
from given.config import LlamaConfig

from grader.checking.api import BF16, Worker, require
from grader.model.weight_shapes import weight_shapes
from grader.observation import Observed
from grader.throughput import expect_at_most

SPARE_LAUNCHES = 2
"""Launches, products and copies that a batch may need beyond those of one sequence."""
SPARE_PRODUCTS = 1.05
"""How much more a model's products may be than the tokens need."""
SPARE_LOADS = 3
"""How often keys and values may be requested per query head: queries and sums may be read as often as those."""
OTHER_BYTES = 64
"""What all kernels but attention may load, and store, for a token: so many hidden states for each layer."""
LARGEST_COPY = 0.25
"""How much may be stored or copied besides, as a part of the keys and values of the context."""


def watch(emulator: Worker, call: Callable[[], object], counted: bool = False) -> Observed:
    """What the device does in a call."""
    with emulator.observe(counted) as seen:
        call()
    return seen


def expect_no_more(name: str, seen: Observed, than: str, other: Observed, spare: int = 0) -> None:
    """Raise Failure when a call needs more launches, products or copies than another one, and a few to spare."""
    for what in ("launches", "gemms", "copies", "device_copies"):
        told = f"{'products' if what == 'gemms' else what.replace('_', ' ')} in {name}"
        allowed = getattr(other, what) + spare
        expect_at_most(told, getattr(seen, what), allowed, f"{than} needs {getattr(other, what)}.")


def multiplications(config: LlamaConfig, tokens: int, rows: int) -> int:
    """What the products of `tokens` rows of every layer and `rows` of the head need."""
    layers = sum(np.prod(s) for n, s in weight_shapes(config).items() if n.startswith("model.layers") and len(s) == 2)
    return tokens * int(layers) + rows * config.vocab_size * config.hidden_size


def expect_products(name: str, seen: Observed, config: LlamaConfig, tokens: int, rows: int) -> None:
    """Raise Failure unless products are as large as `tokens` rows of every layer and `rows` of the head need."""
    needed = multiplications(config, tokens, rows)
    done = sum(call.m * call.n * call.k for call in seen.gemm_calls)
    told = f"{name} makes {done:,} multiplications in matrix products; {needed:,} are needed, by linear.py."
    require(done >= needed, told, "RUNTIME_ERROR", figure=done, threshold=needed)
    advice = f"{tokens} tokens need them in the layers and {rows} rows of logits in the head, no others."
    expect_at_most(f"multiplications in the products of {name}", done, int(SPARE_PRODUCTS * needed), advice)


def expect_decode_bytes(config: LlamaConfig, seen: dict[int, Observed]) -> None:
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
