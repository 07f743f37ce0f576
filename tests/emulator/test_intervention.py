"""The emulator changes the row that it is asked to, and knows where the kernels of the course have their outputs."""

from collections.abc import Iterator

import numpy as np
import pytest
from given.config import LlamaConfig
from given.contracts import BF16, CONTRACTS

from grader import KIT
from grader.checking.api import Handle, OnDevice, Out, Worker
from grader.emulator.device.intervention import OUTPUTS
from grader.worker.connection import Deadlines

NO_FLOATING_ROWS = {"vector_add", "softmax", "argmax", "write_kv"}
"""Kernels whose output no row of which is changed: float32, indices, or scattered rows."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    deadlines = Deadlines()
    deadlines.start(120)
    worker = Worker(KIT / "solutions/engine", deadlines, emulated=True)
    yield worker
    worker.end()


def test_outputs_are_those_of_the_contracts() -> None:
    names = CONTRACTS.keys() - NO_FLOATING_ROWS - {"matmul_naive", "matmul_tiled"}
    assert names == OUTPUTS.keys()
    for name, output in OUTPUTS.items():
        contract = CONTRACTS[name]
        rows, *width = contract.outputs[0].shape
        assert output.pointers == len(contract.arrays)
        assert contract.ints[output.rows] == rows
        assert [contract.ints[index] for index in output.width] == width


def linear(worker: Worker, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    out: np.ndarray = worker.call(
        "linear.linear", Out((len(x), len(weight)), np.float32), OnDevice(x), OnDevice(weight)
    )
    return out


def test_a_row_of_a_product_is_turned(worker: Worker) -> None:
    x, weight = np.eye(3, 4, dtype=np.float32).astype(BF16), np.arange(24, dtype=np.float32).reshape(6, 4).astype(BF16)
    right = linear(worker, x, weight)
    with worker.changing(0, 0.5) as seen:
        got = linear(worker, x, weight)
    changed = seen.changed
    assert changed is not None
    assert (changed.name, changed.rows, changed.row) == ("product", 3, 1)
    np.testing.assert_array_equal(changed.before, right[1])
    np.testing.assert_array_equal(got, [right[0], np.roll(right[1], -3), right[2]])
    np.testing.assert_array_equal(changed.after, got[1])


def test_nothing_is_changed_after_it(worker: Worker) -> None:
    x, weight = np.ones((2, 4), BF16), np.arange(12, dtype=np.float32).reshape(3, 4).astype(BF16)
    with worker.changing(-1, 0.0) as seen:
        first = linear(worker, x, weight)
    assert (seen.outputs, seen.changed) == (1, None)
    np.testing.assert_array_equal(linear(worker, x, weight), first)


def test_outputs_of_a_pass_are_counted(worker: Worker) -> None:
    folder = KIT / "reference_outputs/tiny/model"
    model: Handle = worker.call("model.LlamaModel", str(folder), keep=True)
    with worker.changing(10**6, 0.0) as seen:
        worker.call(model.method("forward"), [1, 2, 3])
    # Of each block: 2 norms, 7 products, rope, attention, 2 additions, SwiGLU; besides embedding, last norm and head.
    assert seen.outputs == 14 * LlamaConfig.from_folder(folder).num_layers + 3
    assert seen.changed is None
