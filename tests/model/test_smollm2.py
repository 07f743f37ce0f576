"""The real model, where `make model` has brought it: tokens, weights, references, and an engine that answers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from given.tokenizer import Tokenizer

from grader import KIT
from grader.model import MODELS
from grader.oracle.llama import FLOAT32
from grader.oracle.references import ReferenceModel, load_model
from grader.serving.chat_template import find_template
from tests.tools import not_run

NAME = "smollm2-135m"
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def model() -> ReferenceModel:
    if not (MODELS / NAME).is_dir():
        not_run(NAME, "make model brings it")
    return load_model(NAME)


def test_tokens(model: ReferenceModel) -> None:
    """Ids that the original tokenizer of SmolLM2 gives: digits stand alone."""
    tokenizer = Tokenizer.from_folder(model.folder)
    assert tokenizer.encode("in 1234") == [254, 216, 33, 34, 35, 36]
    assert tokenizer.encode("") == []
    for text in ("naïve façade — 北京 🎭", " \n\t\r\n  x", "I'll've 3.14159 don't", "def f(x):\n    return x ** 2"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    chat = find_template(model.folder)
    assert chat
    assert chat.encode([{"role": "user", "content": QUESTION}]) == model.reference("chat").ids.tolist()


def test_references(model: ReferenceModel) -> None:
    """The NumPy oracle computes what transformers computed, on the converted weights."""
    for reference in model.references:
        assert len(reference.float32.logits) == min(8, len(reference.ids))
        logits = model.oracle.forward(reference.ids, FLOAT32).logits[reference.rows]
        assert np.abs(logits - reference.float32.logits).max() <= 1e-5 * np.abs(reference.float32.logits).max()
    assert max(len(reference.ids) for reference in model.references) > 256


@pytest.mark.skipif(not (KIT / "solutions").is_dir(), reason="there are no solutions here")
def test_the_solutions_answer(model: ReferenceModel, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grader", "generate", QUESTION, "--submission", "solutions", "--device", "cpu"]
    result = subprocess.run(command, cwd=KIT, env=os.environ, capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stdout) == (0, "The capital of France is Paris.\n"), result.stderr
