"""Keyword arguments and the kit's own classes travel between checks and a submission's Python; no judge does."""

from collections.abc import Iterator

import numpy as np
import pytest
from given.requests import SamplingParams

from grader.checking.api import Failure, Sampling, StudentError, Worker, expect_error
from grader.worker.connection import Deadlines
from tests.submissions import COPY, write_engine

TOY = """
import sys
from given.requests import Completion, SamplingParams, StepOutput

def named(first, second=None, *, third=None):
    return first, second, third

def shift(x, amount):
    x += amount

def temperatures(params):
    return [one.temperature for one in params]

def kit_modules():
    return sorted(name for name in sys.modules if name.startswith(("grader", "tests")))

def outputs():
    return [StepOutput("a", 5, None), Completion([1, 2], None, "stop")], SamplingParams()
"""
X = np.arange(300, dtype=np.float32)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    deadlines = Deadlines()
    deadlines.start(60)
    worker = Worker(write_engine(tmp_path_factory.mktemp("engine"), COPY, toy=TOY), deadlines, emulated=True)
    yield worker
    worker.end()


def test_keywords_travel(worker: Worker) -> None:
    assert worker.call("toy.named", 1, keywords={"third": [2.5], "second": X[:1]})[2] == [2.5]
    assert worker.last_call == "toy.named(first=1, third=[2.5], second[1] f32 = [0])"
    assert worker.call("toy.shift", X, keywords={"amount": 0.0}) is None
    with pytest.raises(Failure, match="The input x was changed"):
        worker.call("toy.shift", keywords={"x": X, "amount": 1})
    with pytest.raises(StudentError, match="unexpected keyword"):
        worker.call("toy.named", 1, keywords={"fourth": 1})


def test_sampling_parameters_travel(worker: Worker) -> None:
    given = [SamplingParams(temperature=0.5), Sampling(temperature=0.25, seed=np.int64(3))]
    assert worker.call("toy.temperatures", given) == [0.5, 0.25]
    assert worker.call("toy.temperatures", keywords={"params": given}) == [0.5, 0.25]
    assert "params=[SamplingParams(temperature=0.5," in worker.last_call
    expect_error(lambda: worker.call("toy.named", Sampling(top_p=float("nan"))), "ValueError", "top_p")
    expect_error(lambda: worker.call("toy.named", {"a": [Sampling(temperature="hot")]}), "ValueError", "temperature")


def test_named_tuples_come_back_as_tuples(worker: Worker) -> None:
    outputs, params = worker.call("toy.outputs")
    assert outputs == [("a", 5, None), ([1, 2], None, "stop")]
    assert worker.call("toy.temperatures", [params]) == [1.0]


def test_whole_numbers_stay_keys(worker: Worker) -> None:
    assert worker.call("builtins:sum", {3: None, 4: None}) == 7


def test_the_worker_holds_nothing_that_judges(worker: Worker) -> None:
    allowed = ["grader", "grader.ipc", "grader.ipc.framing", "grader.worker"]
    own = ("codec", "error_report", "received_arguments", "returned_value", "submission_process")
    assert worker.call("toy.kit_modules") == sorted([*allowed, *(f"grader.worker.{name}" for name in own)])
