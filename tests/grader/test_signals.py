"""What ends a grading: Ctrl-C and the like, unless the process was started to ignore them."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from grader import KIT
from grader.serving.interrupts import interruptible
from tests.submissions import write_engine
from tests.tools import interrupts_enabled

HANG = "import time\nprint('begun')\ndef vector_add(x, y):\n    time.sleep(600)\n"


def grading(folder: Path, *before: str) -> tuple["subprocess.Popen[str]", str]:
    """A grading that waits in its second check, and what it printed; `before` are words before its command."""
    write_engine(folder, vector_add=HANG)
    command = [*before, sys.executable, "-m", "grader", "grade", str(folder), "--stage", "0", "--device", "cpu"]
    with interrupts_enabled():
        process = subprocess.Popen(command, cwd=KIT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    shown = next(line for line in process.stdout if line.startswith("s00.1"))
    time.sleep(1)
    return process, shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_is_130_and_shows_what_was_graded(tmp_path: Path, number: signal.Signals) -> None:
    process, shown = grading(tmp_path)
    process.send_signal(number)
    shown += process.communicate(timeout=20)[0]
    assert process.returncode == 130
    assert "interrupted" in shown
    assert "Traceback" not in shown


def test_what_was_ignored_at_the_start_stays_ignored(tmp_path: Path) -> None:
    """As nohup does with SIGHUP, and a script's shell with SIGINT for its background jobs."""
    process, _ = grading(tmp_path, "sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh")
    for number in (signal.SIGHUP, signal.SIGINT):
        process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.terminate()
    assert "interrupted" in process.communicate(timeout=20)[0]
    assert process.returncode == 130


def test_ctrl_c_stops_what_ends_by_itself() -> None:
    stopped = threading.Event()
    with interrupts_enabled():
        with interruptible(stopped.set):
            os.kill(os.getpid(), signal.SIGINT)
            assert stopped.is_set()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_ctrl_c_stops_nothing() -> None:
    with interrupts_enabled():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interruptible(lambda: pytest.fail("it was stopped")):
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
