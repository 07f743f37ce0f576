"""Stage 2: embedding, residual addition and SwiGLU, the operations that look at each element once."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
from numpy.random import Generator

from grader import oracle
from grader.checking.api import InOut, Out, Worker, check, expect, property_check, require
from grader.checking.draws import bf16, integers, to_bf16
from grader.checks.support.launches import expect_counted, expect_rounded
from grader.checks.support.parallelism import expect_parallel
from grader.checks.support.plug_in import expect_in_model
from grader.observe.traffic import most_wasteful
from grader.oracle.references import ReferenceModel

SHAPES = ((3, 85), (2, 128), (1, 257), (0, 5), (1, 1), (1, 768), (5, 51), (7, 1009), (17, 288))
"""[tokens, width]; 3 · 85, 2 · 128 and 1 · 257 are one less, equal to and one more than a block of 256."""


@check("s02.1")
def embedding_rows(worker: Worker, rng: Generator) -> None:
    """embedding copies the row of each id, also of repeated ids and of the first and last row."""
    for tokens, hidden in SHAPES:
        table, ids = bf16(rng, 101, hidden), np.resize(np.array([100, 0, 7, 7, 100], np.int32), tokens)
        expect(worker.launch("embedding", Out((tokens, hidden)), table, ids), oracle.embedding(table, ids))


@check("s02.2")
def residual_add_shapes(worker: Worker, rng: Generator) -> None:
    """residual_add adds y to x in place at every shape."""
    for shape in SHAPES:
        x, y = bf16(rng, *shape), bf16(rng, *shape)
        expect(worker.launch("residual_add", InOut(x), y), oracle.residual_add(x, y), "x")


@check("s02.3")
def silu_mul_shapes(worker: Worker, rng: Generator) -> None:
    """silu_mul multiplies silu(gate) by up at every shape."""
    for shape in SHAPES:
        gate, up = bf16(rng, *shape, scale=3), bf16(rng, *shape)
        expect(worker.launch("silu_mul", Out(shape), gate, up), oracle.silu_mul(gate, up))
    expect_rounded(worker, "silu_mul", Out((9, 300)), bf16(rng, 9, 300), bf16(rng, 9, 300))


@check("s02.4")
def embedding_wide_rows(worker: Worker, rng: Generator) -> None:
    """embedding copies whole rows that are longer than a block can have threads."""
    for tokens, hidden in ((2, 1023), (2, 1024), (2, 1025), (3, 2048), (5, 2880)):
        table, ids = bf16(rng, 1024, hidden), integers(rng, 1024, tokens)
        expect(worker.launch("embedding", Out((tokens, hidden)), table, ids), oracle.embedding(table, ids))


@check("s02.5")
def residual_add_extremes(worker: Worker, rng: Generator) -> None:
    """residual_add rounds once, to the nearest: huge, tiny and cancelling numbers; infinity and NaN pass through."""
    values = [0, -0.0, 1, 1.0078125, 256, 257, 2.0**-9, 1e-38, -1e-40, 3.3e38, -3.3e38, 1e30, np.inf, np.nan]
    x, y = np.meshgrid(to_bf16([*values, -np.inf]), to_bf16(values))
    expect(worker.launch("residual_add", InOut(x), y), oracle.residual_add(x, y), "x")
    x = bf16(rng, 40, 50, scale=100)
    y = to_bf16(-x.astype(np.float32) * rng.choice([1.0, 0.99, 0.004], x.shape))
    expect(worker.launch("residual_add", InOut(x), y), oracle.residual_add(x, y), "x")


@check("s02.6")
def silu_mul_extremes(worker: Worker, rng: Generator) -> None:
    """silu_mul gives 0, not NaN, at gates of −89 and below, and is right at large gates; NaN passes through."""
    gates = [-3e38, -1e4, -1000, -104, -100, -89, -88.5, -88, -20, -1, -0.0, 1e-30, 1, 20, 89, 200, 1e4, np.nan]
    gate, up = np.meshgrid(to_bf16(rng.permutation(gates)), to_bf16([-2, -1e-3, 0, 1, 1e30, np.nan]))
    expect(worker.launch("silu_mul", Out(gate.shape), gate, up), oracle.silu_mul(gate, up))
    gate, up = bf16(rng, 20, 50, scale=30), bf16(rng, 20, 50, scale=1e3)
    expect(worker.launch("silu_mul", Out(gate.shape), gate, up), oracle.silu_mul(gate, up))


@check("s02.7")
@property_check(tokens=st.integers(0, 7), width=st.integers(1, 500), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def property_of_all(worker: Worker, rng: Generator, tokens: int, width: int, scale: float) -> None:
    """All three kernels are right at any shape and scale."""
    shape = tokens, width
    table, ids = bf16(rng, 13, width, scale=scale), integers(rng, 13, tokens)
    expect(worker.launch("embedding", Out(shape), table, ids), oracle.embedding(table, ids))
    x, y = bf16(rng, *shape, scale=scale), bf16(rng, *shape)
    expect(worker.launch("residual_add", InOut(x), y), oracle.residual_add(x, y), "x")
    expect(worker.launch("silu_mul", Out(shape), x, y), oracle.silu_mul(x, y))


@check("s02.8")
def coalescing(emulator: Worker, rng: Generator) -> None:
    """Each kernel moves at most 1.25 times the fewest possible sectors of 32 bytes in wide rows."""
    shape = int(rng.integers(2, 4)), 16 * int(rng.integers(96, 144))
    x, y = bf16(rng, *shape), bf16(rng, *shape)
    launches = {
        "embedding": (Out(shape), bf16(rng, 9, shape[1]), integers(rng, 9, shape[0])),
        "residual_add": (InOut(x), y),
        "silu_mul": (Out(shape), x, y),
    }
    for op, arguments in launches.items():
        counted = expect_counted(emulator, op, *arguments)
        moved = counted.load_sectors + counted.store_sectors
        fewest = counted.ideal_load_sectors + counted.ideal_store_sectors
        require(
            moved <= 1.25 * fewest,
            f"{op} moves {moved:,} sectors of 32 bytes, {moved / max(fewest, 1):.1f} times the fewest possible: "
            f"uncoalesced, {most_wasteful(counted.sites)}",
            "TOO_SLOW",
            figure=moved,
            threshold=1.25 * fewest,
        )


@check("s02.9")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """Each kernel shares its work among threads that never race, and more rows get more of them."""
    width = int(rng.integers(257, 320))
    table, few, many = bf16(rng, 9, width), bf16(rng, 2, width), bf16(rng, int(rng.integers(60, 70)), width)
    launches: dict[str, list[tuple[Any, ...]]] = {
        "embedding": [(Out(x.shape), table, integers(rng, 9, len(x))) for x in (few, many)],
        "residual_add": [(InOut(x), x) for x in (few, many)],
        "silu_mul": [(Out(x.shape), x, x) for x in (few, many)],
    }
    for op, arguments in launches.items():
        expect_parallel(emulator, worker, op, *arguments)


@check("s02.10")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your three kernels run in all of its layers."""
    expect_in_model(
        tiny,
        embedding=lambda table, ids: worker.launch("embedding", Out((len(ids), table.shape[1])), table, ids),
        residual_add=lambda x, y: worker.launch("residual_add", InOut(x), y),
        silu_mul=lambda gate, up: worker.launch("silu_mul", Out(gate.shape), gate, up),
    )
