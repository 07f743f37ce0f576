"""Objects that are no part of the engine: a check makes them in the worker, passes them on and asks them later."""

from collections.abc import Iterator

import numpy as np
import pytest
from given.tokenizer import Tokenizer

from grader import KIT
from grader.checking.api import StudentError, Worker
from grader.worker.connection import Deadlines
from tests.submissions import COPY, write_engine

TINY = KIT / "reference_outputs/tiny/model"
TOY = """
def draw(generator):
    return generator.random()

def text(decode, tokens):
    return [decode(tokens[: length + 1]) for length in range(len(tokens))]
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    deadlines = Deadlines()
    deadlines.start(60)
    worker = Worker(write_engine(tmp_path_factory.mktemp("engine"), COPY, toy=TOY), deadlines, emulated=True)
    yield worker
    worker.end()


def test_a_random_generator_is_passed_on(worker: Worker) -> None:
    generator = worker.call("numpy.random:default_rng", 5, keep=True)
    wanted = np.random.default_rng(5).random(2)
    assert worker.call("toy.draw", generator) == wanted[0]
    assert worker.call(generator.method("random")) == wanted[1]


def test_decode_counts_its_tokens(worker: Worker) -> None:
    decode = worker.call("grader.checking.probes:CountedDecode", str(TINY), keep=True)
    tokenizer = Tokenizer.from_folder(TINY)
    ids = tokenizer.encode("東京 two")
    assert worker.call("toy.text", decode, ids)[-1] == "東京 two"
    assert worker.call(decode.method("longest")) == len(ids)


def test_a_name_that_nothing_has(worker: Worker) -> None:
    with pytest.raises(StudentError, match="no_such_name"):
        worker.call("numpy.random:no_such_name")
