"""generate and chat with engines made up for the purpose: streamed text, Ctrl-C, and whose fault an error is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader import KIT
from tests.serving.processes import model_with_template
from tests.tools import interrupts_enabled

pytest.importorskip("jinja2", reason="jinja2 is not installed: make setup EXTRAS=model")

ENGINE = """\
import time
from given.requests import StepOutput

class LLM:
    def __init__(self, model_dir, max_num_seqs):
        self.left = []

    def add_request(self, request_id, prompt, sampling_params):
        self.left = list(prompt)[1:]
        assert self.left, "an empty request"

    def has_unfinished_requests(self):
        return bool(self.left)

    def abort(self, request_id):
        print("abort", request_id)
        self.left = []

    def step(self):
        time.sleep(SLEEP)
        token, self.left = self.left[0], self.left[1:]
        return [StepOutput("chat", token, None if self.left else "length")]
"""
DETOKENIZER = """\
class Detokenizer:
    def __init__(self, decode):
        self.decode, self.tokens = decode, []

    def push(self, token):
        self.tokens.append(token)
        return self.decode([token])

    def finish(self):
        return "."
"""


def write(folder: Path, llm: str, detokenizer: str = DETOKENIZER) -> Path:
    engine = folder / "engine"
    engine.mkdir()
    (engine / "__init__.py").write_text("")
    (engine / "llm.py").write_text(llm)
    (engine / "detokenizer.py").write_text(detokenizer)
    return folder


def command(folder: Path, *arguments: str) -> list[str]:
    name, *rest = arguments
    return [
        sys.executable,
        "-m",
        "grader",
        name,
        "--submission",
        str(folder),
        "--model",
        "tiny",
        "--device",
        "cpu",
        *rest,
    ]


def answer(folder: Path, *arguments: str) -> tuple[int, str, str]:
    result = subprocess.run(command(folder, *arguments), cwd=KIT, env=os.environ, capture_output=True, text=True)
    assert "Traceback" not in result.stderr
    return result.returncode, result.stdout, result.stderr


def test_an_answer_is_text_and_its_speed(tmp_path: Path) -> None:
    write(tmp_path, ENGINE.replace("SLEEP", "0"))
    code, text, said = answer(tmp_path, "generate", "O Romeo, Romeo!")
    assert (code, text) == (0, "O Romeo, Romeo!.\n")
    assert "tokens in" in said
    assert said.strip().endswith("length]")
    assert not list(tmp_path.rglob("__pycache__"))


def test_interrupting_aborts_the_request(tmp_path: Path) -> None:
    write(tmp_path, ENGINE.replace("SLEEP", "0.5"))
    arguments = command(tmp_path, "generate", "ROMEO " * 200)
    with interrupts_enabled():
        process = subprocess.Popen(arguments, cwd=KIT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.read(1)  # the answer has begun
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    text, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "abort chat" in text
    assert said.strip().endswith("aborted]")


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (
            "self.left = []\n\n    def add",
            'raise RuntimeError("boom")\n\n    def add',
            "RuntimeError in engine/llm.py:6: boom",
        ),
        ("token, self.left = ", "token, self.lef = ", "gave more tokens than max_tokens = 256"),
        ("token, self.left = ", "return []\n        token, self.left = ", "gave no token 1000 times"),
        ("class LLM:", "class Other:", "engine/llm.py defines no LLM."),
        ("class LLM:", "class LLM", "SyntaxError in engine/llm.py:4"),
        ("time.sleep(SLEEP)", 'raise NotImplementedError("s13.2")', "NOT_IMPLEMENTED s13.2"),
    ],
)
def test_faults_of_the_engine_are_shown_as_its_own(tmp_path: Path, old: str, new: str, wanted: str) -> None:
    assert old in ENGINE
    write(tmp_path, ENGINE.replace(old, new).replace("SLEEP", "0"))
    code, _, said = answer(tmp_path, "generate", "ROMEO:")
    assert (code, wanted in said) == (1, True), said


def test_a_stub_is_named_with_what_comes_first(tmp_path: Path) -> None:
    write(tmp_path, ENGINE, 'def push():\n    raise NotImplementedError("s10.4")\nraise NotImplementedError("s10.4")\n')
    code, _, said = answer(tmp_path, "generate", "ROMEO:")
    assert code == 1
    assert "NOT_IMPLEMENTED s10.4 (engine/detokenizer.py:3)" in said
    assert "The first stub is s10.4 in engine/detokenizer.py:2: make grade STAGE=10." in said


@pytest.mark.parametrize(
    ("arguments", "code", "wanted"),
    [
        (("generate", ""), 2, "there is no prompt"),
        (("generate", "x", "--temperature", "nan"), 2, "temperature must be a number"),
        (("generate", "x", "--model", "nope"), 2, "there is no model nope"),
        (("chat",), 2, "tiny has no chat template"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], code: int, wanted: str) -> None:
    write(tmp_path, ENGINE.replace("SLEEP", "0"))
    result, _, said = answer(tmp_path, *arguments)
    assert (result, wanted in said) == (code, True), said


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{% for %}", "chat_template.jinja: the chat template is faulty: "),
        ("{{ raise_exception('not now') }}", "the model's chat template refuses these messages: not now"),
    ],
)
def test_a_broken_chat_template_is_not_taken_for_none(tmp_path: Path, template: str, wanted: str) -> None:
    write(tmp_path, ENGINE.replace("SLEEP", "0"))
    model = model_with_template(tmp_path / "model", template)
    result, text, said = answer(tmp_path, "generate", "ROMEO:", "--model", str(model))
    assert (result, text, wanted in said) == (2, "", True), said
