"""Device arrays past 2^31 elements, of which only some rows travel, and of which all others must stay zero."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader.checking.api import BF16, Counters, Failure, InOut, Sparse, Worker
from grader.worker.connection import Deadlines

KERNEL = """
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;
extern "C" __global__ void write_kv(bf16* keys, bf16* values, const bf16* k, const bf16* v, const int* slots,
                                    int tokens, int heads, int size) {{
    const int row = heads * size, i = threadIdx.x;
    const {integer} slot = slots[0];
    {body}
}}
"""
NUM_BLOCKS = (1 << 31) // (16 * 8 * 128) + 4
SHAPE = NUM_BLOCKS, 16, 8, 128
LAST = NUM_BLOCKS - 1
SLOT = 16 * LAST + 5
Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Launches a kernel of this body on two pools of 4.3 GB, of which the first and the last block are given."""
    deadlines = Deadlines()
    workers: list[Worker] = []
    deadlines.start(60)

    def launch(body: str, integer: str = "long long", how: str = "launch", k: float = 3) -> Any:
        engine = tmp_path / str(len(workers)) / "engine"
        (engine / "kernels").mkdir(parents=True)
        (engine / "kernels/write_kv.cu").write_text(KERNEL.format(body=body, integer=integer))
        (engine / "launch.toml").write_text("[write_kv]\nblock = [1024]\ngrid = [1]\n")
        workers.append(Worker(engine, deadlines, emulated=True))
        given = np.ones(SHAPE[1:], BF16)
        pools = [InOut(Sparse(SHAPE, BF16, {LAST: given, 0: given})) for _ in range(2)]
        token = np.full((1, 8, 128), k, BF16)
        return getattr(workers[-1], how)("write_kv", *pools, token, token, np.array([SLOT], np.int32))

    yield launch
    for worker in workers:
        worker.end()


def failure_of(call: Callable[[], Any]) -> Failure:
    with pytest.raises(Failure) as caught:
        call()
    return caught.value


def test_the_given_rows_come_back(run: Run) -> None:
    keys, values = run("keys[slot * row + i] = k[i]; values[slot * row + i] = values[i];")
    assert list(keys) == list(values) == [0, LAST]
    expected = np.ones(SHAPE[1:], BF16)
    for block in (keys[0], values[0], values[LAST]):
        assert np.array_equal(block, expected)
    expected[5] = 3
    assert np.array_equal(keys[LAST], expected)


def test_an_address_in_32_bits_is_found(run: Run) -> None:
    failure = failure_of(lambda: run("keys[slot * row + i] = k[i];", integer="int"))
    assert failure.verdict == "OUT_OF_BOUNDS"


@pytest.mark.parametrize("block", [1, 1000, LAST - 1])
def test_other_rows_must_stay(run: Run, block: int) -> None:
    failure = failure_of(lambda: run(f"values[{block * 16 + 15}ll * row + i] = i == 77 ? v[i] : bf16(0.0f);"))
    assert failure.verdict == "OUT_OF_BOUNDS"
    told = f"value_cache[{block}, 15, 0, 77] was written, in a row that the launch must leave alone"
    assert told in failure.message


def test_other_rows_read_as_zero(run: Run) -> None:
    keys, _ = run("keys[i] = keys[slot * row / 2 + i] + keys[16ll * row + i] + keys[(slot - 16) * row + i];")
    assert not keys[0][0].any()


def test_red_zones(run: Run) -> None:
    told = failure_of(lambda: run("if (i < 3) keys[(slot + 11) * row + i] = k[0];")).message
    assert told.startswith(f"Memory was written up to 3 elements past the end of key_cache (shape {list(SHAPE)}, bf16)")


def test_pools_are_counted_by_argument(run: Run) -> None:
    _, counters = run("if (i < 100) keys[slot * row + i] = values[slot * row + i];", how="count")
    assert isinstance(counters, Counters)
    assert [tuple(counters.of(argument)) for argument in (0, 1)] == [(0, 200), (200, 0)]


def test_sparse_inputs_must_stay_as_they_are(tmp_path: Path) -> None:
    kernel = """extern "C" __global__ void vector_add(float* out, const float* x, const float* y, int n) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) if (i == n - 2) { out[i] = x[i]; ((float*)y)[i] = 3; }
    }"""
    engine = tmp_path / "engine"
    (engine / "kernels").mkdir(parents=True)
    (engine / "kernels/vector_add.cu").write_text(kernel)
    deadlines = Deadlines()
    deadlines.start(60)
    worker = Worker(engine, deadlines, emulated=True)
    one = np.array(1, np.float32)
    arguments = (InOut(Sparse((500,), "f4", {498: one})), Sparse((500,), "f4", {498: one, 3: one}))
    failure = failure_of(lambda: worker.launch("vector_add", *arguments, Sparse((500,), "f4", {7: one, 498: one})))
    assert (failure.verdict, "y[498]" in failure.message) == ("INPUT_MODIFIED", True)
    assert worker.last_call.startswith("vector_add(out[500] f32, x[500] f32, y[500] f32)")
    with pytest.raises(ValueError, match=r"x: rows of shape \[2\]"):
        worker.launch("vector_add", arguments[0], Sparse((5, 2), "f4", {0: one}), arguments[1])
    with pytest.raises(TypeError, match="launches only"):
        worker.call("toy.f", arguments[1])
    worker.end()
