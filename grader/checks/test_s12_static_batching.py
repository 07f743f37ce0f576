"""Stage 12: sequences packed one behind the other, so that one pass serves them all. First the kernel."""

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader.checking.api import Out, Worker, check, property_check, require
from grader.checking.draws import Array, bf16
from grader.checks.packing import cumulated, draw_packed, expect_packed
from grader.checks.parallelism import expect_parallel
from grader.checks.plug_in import expect_in_model
from grader.oracle.references import ReferenceModel

OP = "attention_varlen"
LENGTHS = (5,), (), (0, 0), (1,), (3, 0, 7), (15, 16, 17, 1, 0), (31, 32, 33), (64, 1, 65), (127, 129)


@check("s12.1")
def packed_lengths(worker: Worker, rng: Generator) -> None:
    """attention_varlen is right for sequences of any lengths side by side: none, empty ones, many short ones."""
    many = tuple(int(length) for length in rng.integers(1, 4, size=70))
    for heads, kv_heads, head_dim in ((4, 1, 8), (12, 4, 24)):  # the first are small enough to be checked
        for lengths in (*LENGTHS, many):
            expect_packed(worker, draw_packed(rng, [(n, n) for n in lengths], heads, kv_heads, head_dim))
    for pairs in ((3, 8), (1, 5), (2, 0), (0, 4)), ((1, 1), (33, 70), (5, 2), (1, 300)), ((40, 41), (0, 0), (2, 33)):
        expect_packed(worker, draw_packed(rng, pairs, 6, 2, 40))


@check("s12.3")
def apart(worker: Worker, rng: Generator) -> None:
    """A packed sequence sees its own tokens and no others: these may change, and be NaN, and it stays as it is."""
    for lengths in ((17, 20), (3, 40), (33, 1), (64, 32)):
        q, k, v, *starts = draw_packed(rng, [(n, n) for n in (*lengths, 9)], 4, 2, 24)
        before = expect_packed(worker, (q, k, v, *starts))
        own = slice(lengths[0], sum(lengths))
        for fill in (1e4, np.nan):
            changed = [bf16(rng, *array.shape) for array in (q, k, v)]
            changed[1][:], changed[2][:] = 100, fill
            for array, old in zip(changed, (q, k, v), strict=True):
                array[own] = old[own]
            after = worker.launch(OP, Out(q.shape), *changed, *starts, 24**-0.5)
            require(
                bool((after[own] == before[own]).all()),
                f"out[{own.start}:{own.stop}] changed with the tokens of other sequences packed beside it.",
            )


@check("s12.4")
@property_check(
    lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=5),
    group=st.integers(1, 4),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 24, 64, 128]),
)
def property_of_packing(
    worker: Worker, rng: Generator, lengths: list[tuple[int, int]], group: int, kv_heads: int, head_dim: int
) -> None:
    """attention_varlen is right for any sequences, of new tokens behind any past, and any heads."""
    counts = [(queries, queries + past) for queries, past in lengths]
    expect_packed(worker, draw_packed(rng, counts, group * kv_heads, kv_heads, head_dim))


@check("s12.6")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """attention_varlen shares its work among threads that never race, and more sequences get more of them."""
    few, many = ((Out((40 * n, 4, 24)), *draw_packed(rng, [(40, 40)] * n, 4, 2, 24), 0.2) for n in (1, 3))
    expect_parallel(emulator, worker, OP, few, many)


@check("s12.7")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your kernel runs in all layers, other prompts beside each."""

    def attention(q: Array, k: Array, v: Array, scale: float) -> Array:
        starts = cumulated((7, len(q), 40))
        packed = [
            np.concatenate([np.resize(x[::-1], (7, *x.shape[1:])), x, np.resize(x, (40, *x.shape[1:]))])
            for x in (q, k, v)
        ]
        out: Array = worker.launch(OP, Out(packed[0].shape), *packed, starts, starts, scale)
        return out[7:-40]

    expect_in_model(tiny, attention=attention)
