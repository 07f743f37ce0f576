"""Whatever a submission does in its process becomes one failure of one check, and the next call works again."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from grader.checking.api import Failure, Handle, InOut, OnDevice, Out, Worker, expect_error, expect_success
from grader.checking.draws import Array
from grader.ipc.framing import encode_header, pack_frame
from grader.observe.findings import MAX_CHECKED
from grader.worker.connection import Deadlines
from tests.submissions import COPY, write_engine

Launch = Callable[..., Any]
X = np.arange(300, dtype=np.float32)
LONG = np.arange(MAX_CHECKED + 1, dtype=np.float32)
"""Too long for the emulator's own checks of every access: red zones and NaN must do."""

TOY = """
import os, struct, sys, time
import ml_dtypes
import numpy as np

class Counter:
    def __init__(self, start):
        self.value = start
    def add(self, amount):
        self.value += amount
        return self.value

def echo(*values):
    return values[0] if len(values) == 1 else values

def shift(x, amount):
    x += amount

def everything():
    return {"a": [1, 2.5, None, True, "text"], "b": (np.arange(3), np.float32(0.5)), "c": np.zeros((2, 0))}

def bf16():
    return np.array([1, 2], ml_dtypes.bfloat16)

def fill(out):
    out.set(np.full(out.shape, 7, out.dtype))

def raises(text):
    raise ValueError(text)

def stub():
    raise NotImplementedError("s01.1")

def leave(code):
    sys.exit(code)

def die(code):
    os._exit(code)

def interrupt():
    raise KeyboardInterrupt

def kill():
    os.kill(os.getpid(), 11)

def hang():
    while True:
        time.sleep(1)

def flood():
    while True:
        print("x" * 1000)

def say(text):
    print(text)
    return 1

def answer(data):
    for number in range(3, 64):
        try:
            os.write(number, bytes(data))
        except OSError:
            pass

def environment():
    return dict(os.environ)

def deep():
    value = []
    for _ in range(50):
        value = [value]
    return value

def big(count):
    return np.zeros(count, np.uint8)

def objects():
    return np.array([object()])

class Unprintable(Exception):
    def __str__(self):
        raise SystemExit

def unprintable():
    raise Unprintable
"""


@pytest.fixture
def deadlines() -> Deadlines:
    deadlines = Deadlines()
    deadlines.start(30)
    return deadlines


@pytest.fixture
def worker(tmp_path: Path, deadlines: Deadlines) -> Iterator[Worker]:
    worker = Worker(write_engine(tmp_path, COPY, toy=TOY), deadlines, emulated=True)
    yield worker
    worker.end()


@pytest.fixture
def launch(tmp_path: Path, deadlines: Deadlines) -> Iterator[Launch]:
    """Launches a kernel of this body with out, x, y of 300 floats, or like another x."""
    workers: list[Worker] = []

    def run(body: str, x: Array = X) -> Any:
        workers.append(Worker(write_engine(tmp_path / str(len(workers)), body), deadlines, emulated=True))
        return workers[-1].launch("vector_add", Out(len(x), np.float32), x, x)

    yield run
    for worker in workers:
        worker.end()


def failure_of(call: Callable[[], Any]) -> Failure:
    with pytest.raises(Failure) as caught:
        call()
    return caught.value


def test_launch_returns_the_output(launch: Launch) -> None:
    assert np.array_equal(launch(COPY), X)


def test_what_is_not_written_is_nan(launch: Launch) -> None:
    got = launch("if (i < n - 1) out[i] = x[i];")
    assert np.isnan(got[-1])
    assert np.array_equal(got[:-1], X[:-1])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("if (i < n + 3) out[i] = 1;", "up to 3 elements past the end of out (shape [16385], f32)"),
        ("out[i - 1] = 1;", "up to 1 element before the start of out (shape [16385], f32)"),
        ("if (i < n) { out[i] = 1; ((float *)y)[n] = 0; }", "up to 1 element past the end of y (shape [16385], f32)"),
    ],
)
def test_red_zones(body: str, told: str, launch: Launch) -> None:
    failure = failure_of(lambda: launch(body, LONG))
    assert failure.verdict == "OUT_OF_BOUNDS"
    assert told in failure.message


def test_a_changed_input_is_named(launch: Launch) -> None:
    failure = failure_of(lambda: launch("if (i < n) { out[i] = 1; if (i == 7) ((float *)x)[i] = 0; }"))
    assert failure.verdict == "INPUT_MODIFIED"
    assert "input x was changed by the call: 1 of 300 elements, the first at x[7]" in failure.message


def test_reading_past_the_end_shows_in_the_result(launch: Launch) -> None:
    assert np.isnan(launch("if (i < n) out[i] = x[i + 1];", LONG)[-1])


def test_a_wild_address_is_out_of_bounds(launch: Launch) -> None:
    failure = failure_of(lambda: launch("out[i] = *(float *)(i + 8ll);"))
    assert failure.verdict == "OUT_OF_BOUNDS"


def test_an_endless_kernel_times_out(launch: Launch, deadlines: Deadlines) -> None:
    deadlines.call_seconds = 2
    failure = failure_of(lambda: launch("while (n) { ((volatile float *)out)[0] = 1; }"))
    assert failure.verdict == "TIMEOUT"
    assert "vector_add did not return within 2 s" in failure.message
    assert "barrier" not in failure.message, "which threads of the emulator never reach is told at once"


def test_compiler_errors_name_the_students_line(launch: Launch) -> None:
    failure = failure_of(lambda: launch("out[i] = z;"))
    assert failure.verdict == "COMPILE_ERROR"
    assert "vector_add.cu:5" in failure.message
    assert "/tmp" not in failure.message + failure.evidence["log"]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        (", float n", "the contract passes int for parameter #3 (n) of vector_add: declare it as int"),
        (", long long n", "declare it as int"),
        ("", "vector_add must have the 4 parameters of the contract: out, x, y, n"),
    ],
)
def test_parameters_unlike_the_contracts_are_named(
    parameters: str, told: str, tmp_path: Path, deadlines: Deadlines
) -> None:
    engine = write_engine(tmp_path)
    declared = f"vector_add(float *out, const float *x, const float *y{parameters})"
    source = f'extern "C" __global__ void {declared} {{ out[0] = x[0] + y[0]; }}'
    (engine / "kernels/vector_add.cu").write_text(source)
    worker = Worker(engine, deadlines, emulated=True)
    failure = failure_of(lambda: worker.launch("vector_add", Out(300, np.float32), X, X))
    worker.end()
    assert told in failure.message


def test_a_missing_kernel_is_named(tmp_path: Path, deadlines: Deadlines) -> None:
    engine = write_engine(tmp_path)
    file = engine / "kernels/vector_add.cu"
    file.write_text(file.read_text().replace("vector_add", "vector_plus"))
    for worker in (Worker(engine, deadlines, emulated=True),):
        failure = failure_of(lambda: worker.launch("vector_add", Out(3, np.float32), X[:3], X[:3]))  # noqa: B023
        worker.end()
    assert failure.verdict == "COMPILE_ERROR"
    assert "has no kernel vector_add" in failure.message


def test_the_last_call_tells_shapes(worker: Worker) -> None:
    worker.launch("vector_add", Out(300, np.float32), X, X)
    assert worker.last_call.startswith("vector_add(out[300] f32, x[300] f32, y[300] f32)")


def test_each_call_gets_other_addresses(worker: Worker, tmp_path: Path) -> None:
    body = "if (i == 0) ((unsigned long long *)out)[0] = (unsigned long long)out;"
    worker.engine.joinpath("kernels/vector_add.cu").write_text(
        (write_engine(tmp_path / "other", body) / "kernels/vector_add.cu").read_text()
    )
    size = len(LONG)
    got = [worker.launch("vector_add", Out(size, np.float32), LONG, LONG)[:2].view(np.uint64)[0] for _ in range(2)]
    assert got[0] != got[1]


# Calls


def test_values_survive_the_journey(worker: Worker) -> None:
    got = worker.call("toy.everything")
    assert got["a"] == [1, 2.5, None, True, "text"]
    assert np.array_equal(got["b"][0], np.arange(3))
    assert (got["b"][1], got["b"][1].dtype, got["c"].shape) == (0.5, np.float32, (2, 0))
    assert worker.call("toy.bf16").dtype == ml_dtypes.bfloat16
    assert worker.call("toy.echo", [1, (2, "é")], {"k": X[:2]})[0] == [1, (2, "é")]


def test_objects_stay_in_the_worker(worker: Worker) -> None:
    counter = worker.call("toy.Counter", 5)
    assert isinstance(counter, Handle)
    assert worker.call(counter.method("add"), 2) == 7
    assert worker.call(counter.method("add"), 2) == 9
    failure_of(lambda: worker.call("toy.die", 0))
    assert failure_of(lambda: worker.call(counter.method("add"), 2)).message.startswith("The Counter was lost")


def test_device_arguments(worker: Worker) -> None:
    assert np.array_equal(worker.call("toy.fill", Out((2, 3), np.float32)), np.full((2, 3), 7, np.float32))
    assert np.array_equal(worker.call("toy.fill", InOut(X)), np.full(300, 7, np.float32))
    assert np.array_equal(worker.call("toy.echo", OnDevice(X)), X)
    assert failure_of(lambda: worker.call("toy.fill", OnDevice(X))).verdict == "INPUT_MODIFIED"


def test_python_cannot_reach_the_kernels_launcher(worker: Worker) -> None:
    (worker.engine / "cheat.py").write_text(
        "from given import ops\ndef patch():\n    ops.vector_add = lambda out, x, y: None\n"
    )
    worker.call("cheat.patch")
    assert np.array_equal(worker.launch("vector_add", Out(300, np.float32), X, X), X)


def test_a_changed_host_array_is_seen(worker: Worker) -> None:
    assert failure_of(lambda: worker.call("toy.shift", X, 1.0)).verdict == "INPUT_MODIFIED"


def frame(header: dict[str, Any]) -> list[int]:
    return list(pack_frame(encode_header(header)))


@pytest.mark.parametrize(
    ("target", "arguments", "verdict", "told"),
    [
        ("toy.raises", ["[red]\x1b[31mno\x07"], "RUNTIME_ERROR", "ValueError in toy.py:29: [red]no"),
        ("toy.stub", [], "NOT_IMPLEMENTED", "s01.1 is not implemented yet"),
        ("toy.leave", [0], "RUNTIME_ERROR", "SystemExit in toy.py:"),
        ("toy.interrupt", [], "RUNTIME_ERROR", "KeyboardInterrupt in toy.py:"),
        ("toy.unprintable", [], "RUNTIME_ERROR", "its text cannot be made"),
        ("toy.objects", [], "RUNTIME_ERROR", "an array of dtype object"),
        ("toy.absent", [], "RUNTIME_ERROR", "engine/toy.py defines no absent"),
        ("toy.echo2", [], "RUNTIME_ERROR", "defines no echo2"),
        ("absent.f", [], "RUNTIME_ERROR", "engine/absent.py is missing"),
        ("toy.say", [], "RUNTIME_ERROR", "missing 1 required positional argument"),
        ("toy.die", [0], "CRASHED", "exit code 0"),
        ("toy.kill", [], "CRASHED", "SIGSEGV"),
        ("toy.flood", [], "RUNTIME_ERROR", "printed more than 16 MiB"),
        ("toy.deep", [], "RUNTIME_ERROR", "sent no valid answer but"),
        ("toy.big", [1 << 27], "RUNTIME_ERROR", "at most 67108864 are right"),
        ("toy.answer", [list(b"\xff" * 64)], "RUNTIME_ERROR", "sent no valid answer but"),
        ("toy.answer", [list(b"\x02\0\0\0\0\0\0\0\0\0\0\0[]")], "RUNTIME_ERROR", "sent no valid answer but"),
        ("toy.answer", [list(b"\x02\0\0\0\0\0\0\0\0\0\0\0{}")], "RUNTIME_ERROR", "sent no valid answer but"),
        ("toy.answer", [frame({"ok": True, "result": {"array": ["int8", [1 << 70, 0], 0]}})], "RUNTIME_ERROR", "shape"),
        (
            "toy.answer",
            [list(b"\x0b\0\0\0\0\0\0\0\0\0\0\0" + b'{"ok":true}')],
            "RUNTIME_ERROR",
            "sent no valid answer but",
        ),
        (
            "toy.answer",
            [list(b"\x0c\0\0\0\0\0\0\0\0\0\0\0" + b'{"error": 1}')],
            "RUNTIME_ERROR",
            "sent no valid answer but",
        ),
    ],
)
def test_every_end_is_one_failure(target: str, arguments: list[Any], verdict: str, told: str, worker: Worker) -> None:
    failure = failure_of(lambda: worker.call(target, *arguments))
    assert (failure.verdict, told in failure.message) == (verdict, True), failure.message
    assert worker.call("toy.echo", 3) == 3


def test_a_hanging_call_times_out(worker: Worker, deadlines: Deadlines) -> None:
    deadlines.call_seconds = 1.5
    failure = failure_of(lambda: worker.call("toy.hang"))
    assert (failure.verdict, "toy.hang did not return within 1.5 s" in failure.message) == ("TIMEOUT", True)
    deadlines.start(30)
    assert worker.call("toy.echo", 3) == 3


def test_the_checks_deadline_holds_over_calls(worker: Worker, deadlines: Deadlines) -> None:
    worker.call("toy.echo", 1)
    deadlines.deadline = time.monotonic()
    assert failure_of(lambda: worker.call("toy.echo", 1)).message.startswith("The check took too long")


def test_a_syntax_error_names_its_line(worker: Worker) -> None:
    (worker.engine / "broken.py").write_text("x = 1\ny = (\n")
    failure = failure_of(lambda: worker.call("broken.f"))
    assert (failure.verdict, "SyntaxError in broken.py:2" in failure.message) == ("RUNTIME_ERROR", True)


def test_what_was_printed_is_kept_and_cleaned(worker: Worker) -> None:
    worker.call("toy.say", "\x1b[2Jhello")
    assert worker.printed() == "hello"
    worker.release()
    assert worker.printed() == ""


def test_the_environment_is_clean(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "1")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DX")
    names = set(worker.call("toy.environment"))
    assert {"PATH", "HOME"} < names
    assert not names & {"SECRET_TOKEN", "NVCC_APPEND_FLAGS", "PYTHONPATH", "PYTEST_CURRENT_TEST"}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import numpy as np\ndef f(x):\n    return x @ x", "engine/model.py, line 3: @ is a product on the host"),
        ("def f(x):\n    return x.dot(x)", "line 2: x.dot(…) is a product"),
        (f"x = a{'.b' * 2000}.dot(x)", "line 1: ….dot(…) is a product"),
        ("import torch", "line 1: imports torch"),
        ("from pycuda._connection import current", "line 1: imports a private part of pycuda"),
        ("import pycuda._memory", "line 1: imports a private part of pycuda"),
        ("from pycuda import _driver", "line 1: imports a private part of pycuda"),
        ("from .helper import f", "engine/helper.py, line 1: imports scipy"),
        ("def f(x):\n    \0", "engine/model.py, line 2: holds a NUL"),
    ],
)
def test_rules_of_host_stages(source: str, told: str, worker: Worker) -> None:
    (worker.engine / "model.py").write_text(source)
    (worker.engine / "helper.py").write_text("import scipy")
    failure = failure_of(lambda: worker.call("model.f", 1))
    assert (failure.verdict, told in failure.message) == ("RUNTIME_ERROR", True), failure.message
    assert worker.call("toy.echo", 3) == 3


def test_expect_error(worker: Worker) -> None:
    expect_error(lambda: worker.call("toy.raises", "about w1"), "ValueError", "w1")
    expect_error(lambda: worker.call("toy.raises", ""), "Exception")
    failure = failure_of(lambda: expect_error(lambda: worker.call("toy.raises", "no"), "ValueError", "w1"))
    assert failure.message.startswith("ValueError must name 'w1'")
    failure = failure_of(lambda: expect_error(lambda: worker.call("toy.echo", 1), "ValueError"))
    assert failure.message == "The call returned; it must raise ValueError."
    failure = failure_of(lambda: expect_error(lambda: worker.call("toy.raises", "no"), "KeyError", called="raises(…)"))
    assert failure.message == "raises(…) must raise KeyError. It raised ValueError in toy.py:29: no."
    failure = failure_of(lambda: expect_success(lambda: worker.call("toy.raises", "no"), "raises(…)", "it is allowed"))
    assert failure.message == "raises(…) must succeed: it is allowed. It raised ValueError in toy.py:29: no."
