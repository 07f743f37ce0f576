"""`python -m grader serve` in a process of its own, as a user starts it, on a port that is free."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai

from grader import KIT
from tests.tools import interrupts_enabled

SECONDS = 60.0
"""Far more than anything here takes on a machine that does nothing else."""


class Process:
    """A running server; what it says is in `said`, line by line."""

    def __init__(self, submission: Path, model: str, *options: str) -> None:
        command = [sys.executable, "-m", "grader", "serve", "--port", "0", "--device", "cpu"]
        command += ["--submission", str(submission), "--model", model, *options]
        with interrupts_enabled():
            self.process = subprocess.Popen(command, cwd=KIT, env=os.environ, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self.model = Path(model).name
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)

    @property
    def text(self) -> str:
        return "".join(self.said)

    def wait_for_url(self) -> str:
        wait_until(lambda: "Serving" in self.text or self.process.poll() is not None)
        found = re.search(r"Serving \S+ on (\S+)/v1;", self.text)
        assert found, self.text
        return found[1]

    def end(self, number: int = signal.SIGINT) -> int:
        """Its exit code after this signal; what it said is complete then."""
        self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code


class Running:
    """A server that takes requests, and clients for it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.model = process.model
        self.url = process.wait_for_url()
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=SECONDS)
        self.http = httpx2.Client(base_url=self.url, timeout=SECONDS)
        wait_until(self.answers)

    def answers(self) -> bool:
        try:
            self.health()
        except httpx2.ConnectError:
            return False
        return True

    def health(self) -> dict[str, Any]:
        content: dict[str, Any] = self.http.get("/health").json()
        return content

    def wait_until_idle(self) -> None:
        """Until the engine has no request and all its blocks are free."""

        def idle() -> bool:
            state = self.health()
            return state["running"] == state["waiting"] == 0 and state["free_blocks"] == state["total_blocks"]

        wait_until(idle)


@contextmanager
def running(submission: Path, model: str, *options: str) -> Iterator[Running]:
    process = Process(submission, model, *options)
    try:
        yield Running(process)
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait()


def model_with_template(folder: Path, template: str) -> Path:
    """The tiny model without its weights, with this chat template."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(KIT / "reference_outputs/tiny/model" / name, folder)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
