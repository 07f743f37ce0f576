"""Stage 4: rotary position embedding: the tables in Python, the rotation as a kernel that takes positions."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
from given.config import Llama3RopeScaling, LlamaConfig
from numpy.random import Generator

from grader import oracle
from grader.checking.api import InOut, Worker, check, expect, property_check
from grader.checking.draws import Array, bf16, floats, integers, rope_config, to_bf16
from grader.checks.support.launches import expect_rounded
from grader.checks.support.parallelism import expect_parallel
from grader.checks.support.plug_in import expect_in_model
from grader.oracle.references import ReferenceModel


def expect_tables(worker: Worker, config: LlamaConfig, length: int) -> None:
    tables = worker.call("rope.rope_tables", config, length)
    got = tables if isinstance(tables, tuple | list) and len(tables) == 2 else (tables, None)
    for name, table, expected in zip(("cos", "sin"), got, oracle.rope_tables(config, length), strict=True):
        expect(table, expected, name)


def angles(length: int, head_dim: int) -> tuple[Array, Array]:
    """cos and sin of an unscaled table with base 500,000."""
    cos, sin = oracle.rope_tables(rope_config(head_dim), length)
    return np.asarray(cos.values, np.float32), np.asarray(sin.values, np.float32)


def expect_rotation(worker: Worker, q: Array, k: Array, cos: Array, sin: Array, positions: Array) -> None:
    got = worker.launch("rope", InOut(q), InOut(k), cos, sin, positions)
    for name, array, expected in zip("qk", got, oracle.rope(q, k, cos, sin, positions), strict=True):
        expect(array, expected, name)


@check("s04.1")
def plain_tables(worker: Worker) -> None:
    """rope_tables gives the cosines and sines of each position and pair, for any base and head size."""
    for head_dim, theta in ((2, 100.0), (24, 500_000.0), (64, 10_000.0), (128, 500_000.0)):
        for length in (0, 1, 3, 300):
            expect_tables(worker, rope_config(head_dim, theta), length)


@check("s04.2")
def one_pair(worker: Worker) -> None:
    """The kernel turns element i together with element i + D/2, not with its neighbour."""
    cos, sin = angles(4, 64)
    for i in (1, 0, 31, 33):
        q, k = to_bf16(np.zeros((1, 3, 64))), to_bf16(np.zeros((1, 1, 64)))
        q[:, :, i] = k[:, :, i] = 1
        expect_rotation(worker, q, k, cos, sin, np.array([1], np.int32))


@check("s04.3")
def scaled_tables(worker: Worker) -> None:
    """rope_tables scales the frequencies as Llama 3 does: high ones stay, low ones are divided, others blended."""
    published = rope_config(64, scaling=Llama3RopeScaling(32.0, 1.0, 4.0, 8192))
    for config in (
        published,
        replace(published, head_dim=128, rope_scaling=Llama3RopeScaling(8.0, 1.0, 4.0, 8192)),
        replace(published, head_dim=24, rope_theta=10_000.0, rope_scaling=Llama3RopeScaling(4.0, 2.0, 3.0, 64)),
    ):
        expect_tables(worker, config, 600)


@check("s04.4")
def far_positions(worker: Worker) -> None:
    """rope_tables keeps its angles precise at positions 255 to 259, 1,023, 2,047 and 4,095."""
    expect_tables(worker, rope_config(24), 4096)
    expect_tables(worker, rope_config(64, scaling=Llama3RopeScaling(32.0, 1.0, 4.0, 8192)), 2048)


@check("s04.5")
def any_positions(worker: Worker, rng: Generator) -> None:
    """The kernel takes each token's own position: unsorted, repeated, past 256."""
    cos, sin = angles(2048, 64)
    for positions in ([0], [257], [5, 4, 3], [700, 0, 2047, 700, 256, 255, 1]):
        q, k = bf16(rng, len(positions), 4, 64), bf16(rng, len(positions), 2, 64)
        expect_rotation(worker, q, k, cos, sin, np.array(positions, np.int32))


@check("s04.6")
def head_counts(worker: Worker, rng: Generator) -> None:
    """The kernel turns every head of q and k, whose counts differ, at every head size."""
    for tokens, heads, kv_heads, head_dim in (
        *((3, 12, 4, 24), (17, 12, 4, 24), (0, 4, 2, 24), (1, 1, 1, 2), (2, 32, 8, 64)),
        *((3, 1, 1, 128), (3, 2, 7, 8), (2, 28, 4, 128), (5, 3, 1, 42)),
    ):
        cos, sin = angles(20, head_dim)
        q, k = bf16(rng, tokens, heads, head_dim), bf16(rng, tokens, kv_heads, head_dim)
        expect_rotation(worker, q, k, cos, sin, np.arange(tokens, dtype=np.int32) + 2)


@check("s04.7")
def given_tables(worker: Worker, rng: Generator) -> None:
    """The kernel uses the tables it is given, whatever they hold, and rounds once."""
    for scale in (1.0, 1e3, 1e-3):
        cos, sin = floats(rng, 9, 32), floats(rng, 9, 32, scale=scale)
        q, k = bf16(rng, 6, 3, 64, scale=scale), bf16(rng, 6, 3, 64)
        expect_rounded(worker, "rope", InOut(q), InOut(k), cos, sin, integers(rng, 9, 6))


@check("s04.8")
@property_check(tokens=st.integers(0, 6), heads=st.integers(1, 5), kv_heads=st.integers(1, 3), half=st.integers(1, 20))
def property_of_kernel(worker: Worker, rng: Generator, tokens: int, heads: int, kv_heads: int, half: int) -> None:
    """The kernel is right at any shape and position."""
    cos, sin = angles(400, 2 * half)
    q, k = bf16(rng, tokens, heads, 2 * half), bf16(rng, tokens, kv_heads, 2 * half)
    expect_rotation(worker, q, k, cos, sin, integers(rng, 400, tokens))


@check("s04.9")
def parallelism(emulator: Worker, worker: Worker, rng: Generator) -> None:
    """The kernel shares its work among threads that never race, and more tokens get more of them."""
    launches = []
    heads = int(rng.integers(9, 13))
    for tokens in (1, 16):
        q, k = bf16(rng, tokens, heads, 24), bf16(rng, tokens, 4, 24)
        launches.append((InOut(q), InOut(k), *angles(32, 24), integers(rng, 32, tokens)))
    expect_parallel(emulator, worker, "rope", *launches)


@check("s04.10")
def in_the_model(worker: Worker, tiny: ReferenceModel) -> None:
    """The stored model gives its reference logits when your kernel turns the queries and keys of all layers."""
    expect_in_model(tiny, rope=lambda q, k, *tables: worker.launch("rope", InOut(q), InOut(k), *tables))
