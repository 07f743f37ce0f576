"""Engines made up to fail: who is told what, and what goes on. And how the server starts and ends."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from grader import KIT
from tests.serving.processes import Running, model_with_template, running, wait_until

ENGINE = '''\
import time
from given.requests import StepOutput, UnknownRequest

STEP_FAILS, ADD_FAILS, NO_LIST, NO_TOKEN, EXITS, ABORT_FAILS, ENDLESS = range(1, 8)

class LLM:
    """Answers with token 65, again and again; a prompt of one of the numbers above fails in its way."""

    def __init__(self, model_dir, max_num_seqs):
        self.left = {}
        self.prompts = {}

    def add_request(self, request_id, prompt, sampling_params):
        if prompt[0] == ADD_FAILS:
            raise RuntimeError("no room")
        self.left[request_id] = sampling_params.max_tokens
        self.prompts[request_id] = prompt[0]

    def abort(self, request_id):
        if request_id not in self.left:
            raise UnknownRequest(request_id)
        if self.prompts[request_id] == ABORT_FAILS:
            raise RuntimeError("stuck")
        del self.left[request_id]

    def step(self):
        kinds = [self.prompts[request_id] for request_id in self.left]
        if STEP_FAILS in kinds:
            raise RuntimeError("boom")
        if EXITS in kinds:
            exit(3)
        if NO_LIST in kinds:
            return None
        if NO_TOKEN in kinds:
            return []
        outputs = []
        time.sleep(0.001)
        for request_id in list(self.left):
            self.left[request_id] -= self.prompts[request_id] not in (ENDLESS, ABORT_FAILS)
            done = not self.left[request_id]
            outputs.append(StepOutput(request_id, 65, "length" if done else None))
            if done:
                del self.left[request_id]
        return outputs

    def stats(self):
        raise NotImplementedError("counts")
'''
STEP_FAILS, ADD_FAILS, NO_LIST, NO_TOKEN, EXITS, ABORT_FAILS, ENDLESS = range(1, 8)
FINE = 9


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("submission")
    (folder / "engine").mkdir()
    (folder / "engine" / "__init__.py").write_text("")
    (folder / "engine" / "llm.py").write_text(ENGINE)
    return folder


@pytest.fixture(scope="module")
def faulty(submission: Path) -> Iterator[Running]:
    with running(submission, "tiny") as server:
        yield server
        assert "Traceback" not in server.process.text


def ask(server: Running, kind: int) -> int:
    """How many tokens come back."""
    answer = server.client.completions.create(model="tiny", prompt=[kind])
    assert answer.usage
    return answer.usage.completion_tokens


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (STEP_FAILS, r"RuntimeError in engine/llm.py:\d+: boom"),
        (ADD_FAILS, r"RuntimeError in engine/llm.py:\d+: no room"),
        (NO_LIST, "TypeError"),
        (NO_TOKEN, "step gave no token 1000 times in a row"),
        (EXITS, "SystemExit"),
    ],
)
def test_a_failure_ends_its_request_only(faulty: Running, kind: int, wanted: str) -> None:
    with pytest.raises(openai.InternalServerError, match=wanted) as failed:
        ask(faulty, kind)
    assert failed.value.status_code == 500
    assert ask(faulty, FINE) == 16
    assert faulty.health()["status"] == "ok"


def test_a_stream_tells_of_a_failure_in_an_event(faulty: Running) -> None:
    stream = iter(faulty.client.completions.create(model="tiny", prompt=[ENDLESS], stream=True))
    next(stream)
    with pytest.raises(openai.InternalServerError):
        ask(faulty, STEP_FAILS)
    with pytest.raises(openai.APIError, match="boom"):
        list(stream)
    assert ask(faulty, FINE) == 16


def test_an_engine_that_fails_again_and_again_is_not_well(faulty: Running) -> None:
    for _ in range(3):
        assert faulty.health()["status"] == "ok"
        with pytest.raises(openai.InternalServerError, match="boom"):
            ask(faulty, STEP_FAILS)
    health = faulty.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "failed")
    assert "the last 3 steps failed: RuntimeError" in health.json()["reason"]
    assert ask(faulty, FINE) == 16
    assert faulty.http.get("/health").status_code == 200


def test_an_engine_that_cannot_let_go_is_given_up(submission: Path) -> None:
    with running(submission, "tiny") as server:
        server.client.completions.create(model="tiny", prompt=[ABORT_FAILS], stream=True).close()
        wait_until(lambda: server.http.get("/health").status_code == 503)
        assert "stuck" in server.health()["reason"]
        with pytest.raises(openai.InternalServerError, match="stuck") as refused:
            ask(server, FINE)
        assert refused.value.status_code == 503
        assert server.process.end(signal.SIGTERM) == 1
        assert "The engine is given up" in server.process.text
        assert "Traceback" not in server.process.text


def test_interrupting_ends_streams_with_an_error(submission: Path) -> None:
    with running(submission, "tiny") as server:
        stream = iter(server.client.completions.create(model="tiny", prompt=[ENDLESS], stream=True))
        next(stream)
        server.process.process.send_signal(signal.SIGINT)
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
        assert server.process.process.wait(30) == 0
        assert "Traceback" not in server.process.text


def command(*options: str) -> "subprocess.CompletedProcess[str]":
    arguments = [sys.executable, "-m", "grader", "serve", "--device", "cpu", *options]
    return subprocess.run(arguments, cwd=KIT, capture_output=True, text=True, timeout=60)


def test_wrong_usage(submission: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = command("--model", "tiny", "--submission", str(submission), "--port", port)
        assert (result.returncode, "choose another PORT=" in result.stderr) == (2, True), result.stderr
    for options, wanted in (
        (("--model", "nope"), "there is no model nope"),
        (("--model", str(model_with_template(tmp_path / "model", "{% for %}"))), "the chat template is faulty: "),
        (("--host", "203.0.113.1"), "choose another PORT= or HOST="),  # an address that no machine has
        (("--port", "70000"), "is no port"),
        (("--max-num-seqs", "0"), "is no whole number from 1"),
    ):
        result = command(
            "--submission", str(submission), *(("--port", "0") if "--port" not in options else ()), *options
        )
        assert (result.returncode, wanted in result.stderr) == (2, True), result.stderr


def test_a_stub_is_named() -> None:
    result = command("--model", "tiny", "--submission", "starter", "--port", "0")
    assert (result.returncode, "NOT_IMPLEMENTED" in result.stderr) == (1, True), result.stderr
