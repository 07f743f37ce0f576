"""One cap of device memory for an engine on the scripted model, and what contiguous rows would make of it."""

from numpy.random import Generator

from grader.checks.serving import ending
from grader.model.weight_shapes import weight_shapes
from grader.oracle.scripted import ScriptedModel
from grader.trace import BF16_BYTES, Trace, kv_bytes_per_token

MODEL_LEN = 512
"""Tokens of a contiguous row: a request may become so long."""
KV_ROWS = 6
"""The cache of the engine under test has the memory of so many rows,"""
CAP_ROWS = 22
"""and the cap leaves room for so many beside the weights: what is more than the cache is for all else in a step."""


def kv_bytes(model: ScriptedModel) -> int:
    """The cache's memory."""
    return KV_ROWS * MODEL_LEN * kv_bytes_per_token(model.config)


def device_cap(model: ScriptedModel) -> int:
    """The weights, and CAP_ROWS contiguous rows: even if it had no other need, a contiguous cache held no more."""
    weights = sum(_elements(shape) for shape in weight_shapes(model.config).values()) * BF16_BYTES
    return weights + CAP_ROWS * MODEL_LEN * kv_bytes_per_token(model.config)


def crowded_trace(rng: Generator, model: ScriptedModel, requests: int) -> Trace:
    """Requests with short answers, which nobody can know: each has a max_tokens as large as the context allows."""
    trace = []
    for index in range(requests):
        length, tokens = int(rng.integers(1, 21)), int(rng.integers(8, 25))
        trace.append(ending(f"r{index}", model.prompt_for(rng, tokens, length), tokens, most=MODEL_LEN - length))
    return trace


def _elements(shape: tuple[int, ...]) -> int:
    elements = 1
    for length in shape:
        elements *= length
    return elements
