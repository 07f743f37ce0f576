"""Finds what a submission's kernel computed among the results of the reference, and changes it there in the same way.

A forward pass of the reference is a list of nodes: the results of its operations, in order. A row that a submission's
kernel or product wrote belongs to the node that has a row like it, whatever the kernel is called. Products of several
weights at once are several nodes side by side.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grader.judge.compare import ROW_FACTOR, row_errors
from grader.oracle.llama import FLOAT32, HUGGING_FACE_BF16, Floats, Forward, LlamaOracle, Operations

PACKED = ((0, 1), (1, 2), (0, 1, 2), (4, 5))
"""Which products of a block, as Operations.linear makes them in order (q, k, v, o, gate, up, down), may be one."""
LINEAR_LAYERS = 7

Node = tuple[str, int]
"""An operation, and how many of its kind came before it."""


class Change(NamedTuple):
    """What is added to a row of a node, [width]."""

    node: Node
    row: int
    added: Floats


class _Following(Operations):
    """Operations that keep what each returns, as [rows, width], and add changes to it."""

    def __init__(self, base: Operations, changes: Sequence[Change]) -> None:
        self.nodes: dict[Node, Floats] = {}
        self._base = base
        self._changes = changes
        self._counts: Counter[str] = Counter()

    def _kept(self, name: str, result: Floats) -> Floats:
        node = name, self._counts[name]
        self._counts[name] += 1
        rows = np.array(result, np.float32).reshape(len(result), -1)
        for change in self._changes:
            if change.node == node:
                rows[change.row] += change.added
        self.nodes[node] = rows
        return rows.reshape(result.shape)

    def embedding(self, table: Floats, ids: NDArray[np.int32]) -> Floats:
        return self._kept("embedding", self._base.embedding(table, ids))

    def rmsnorm(self, x: Floats, weight: Floats, eps: float) -> Floats:
        return self._kept("rmsnorm", self._base.rmsnorm(x, weight, eps))

    def linear(self, x: Floats, weight: Floats) -> Floats:
        return self._kept("linear", self._base.linear(x, weight))

    def head(self, x: Floats, weight: Floats) -> Floats:
        return self._kept("head", self._base.head(x, weight))

    def rope_tables(self, *arguments: Any) -> tuple[Floats, Floats]:
        return self._base.rope_tables(*arguments)

    def rope(self, *arguments: Any) -> tuple[Floats, Floats]:
        q, k = self._base.rope(*arguments)
        return self._kept("rope of q", q), self._kept("rope of k", k)

    def attention(self, q: Floats, k: Floats, v: Floats, scale: float) -> Floats:
        return self._kept("attention", self._base.attention(q, k, v, scale))

    def silu_mul(self, gate: Floats, up: Floats) -> Floats:
        return self._kept("silu_mul", self._base.silu_mul(gate, up))

    def residual_add(self, x: Floats, y: Floats) -> Floats:
        return self._kept("residual_add", self._base.residual_add(x, y))


class Pass(NamedTuple):
    """A forward pass of a sequence, right and as far off as bf16 may be, with changes."""

    float32: Forward
    bf16: Forward
    nodes: Mapping[Node, Floats]
    bf16_nodes: Mapping[Node, Floats]


def run_pass(oracle: LlamaOracle, ids: ArrayLike, changes: Sequence[Change] = ()) -> Pass:
    """The forward pass over ids [T] with these changes."""
    exact, rounded = (_Following(base, changes) for base in (FLOAT32, HUGGING_FACE_BF16))
    return Pass(oracle.forward(ids, exact), oracle.forward(ids, rounded), exact.nodes, rounded.nodes)


def find_changes(seen: Pass, before: Floats, after: Floats) -> Iterator[list[Change]]:
    """The changes of a pass that may be this change of a row: those of each node and row that are like `before`.

    A row is like it when its rms distance is within the bound of logits.
    """
    for nodes in [*([node] for node in seen.nodes), *_packed(seen.nodes)]:
        if sum(seen.nodes[node].shape[1] for node in nodes) != len(before):
            continue
        exact, rounded = (np.concatenate([found[node] for node in nodes], 1) for found in (seen.nodes, seen.bf16_nodes))
        unit = row_errors(rounded, exact)
        near = row_errors(exact, np.broadcast_to(before, exact.shape)) <= ROW_FACTOR * np.maximum(unit, np.median(unit))
        for row in np.flatnonzero(near):
            yield list(_split(nodes, seen.nodes, int(row), after - before))


def _packed(nodes: Mapping[Node, Floats]) -> Iterator[list[Node]]:
    layers = sum(name == "linear" for name, _ in nodes) // LINEAR_LAYERS
    for layer in range(layers):
        yield from ([("linear", LINEAR_LAYERS * layer + index) for index in group] for group in PACKED)


def _split(nodes: Sequence[Node], found: Mapping[Node, Floats], row: int, added: Floats) -> Iterator[Change]:
    begin = 0
    for node in nodes:
        end = begin + found[node].shape[1]
        yield Change(node, row, added[begin:end])
        begin = end
