"""NumPy computes on one thread in every process of the kit, or on as many as the user wants."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader import BLAS_THREADS, KIT
from grader.worker.child import Child

COUNT_THREADS = """
import grader
import numpy
square = numpy.ones((500, 500))
square @ square
print(len(list(__import__("pathlib").Path("/proc/self/task").iterdir())))
"""


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir() or os.cpu_count() == 1, reason="threads cannot be counted here"
)
@pytest.mark.parametrize(("wanted", "threads"), [(None, 1), ("2", 2)])
def test_a_product_takes_one_thread_unless_the_user_set_more(wanted: str | None, threads: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in BLAS_THREADS}
    environment |= {"OPENBLAS_NUM_THREADS": wanted} if wanted else {}
    command = [sys.executable, "-c", COUNT_THREADS]
    assert int(subprocess.check_output(command, cwd=KIT, env=environment)) == threads


def test_a_worker_gets_the_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    child = Child(emulated=True)
    try:
        # Its answer: before it runs, Linux shows no environment.
        child.exchange({"engine": str(tmp_path)}, b"", 0, time.monotonic() + 60)
        given = Path(f"/proc/{child.process.pid}/environ")
        if not given.exists():
            pytest.skip("the environment of a process cannot be read here")
        assert {f"{name}={os.environ[name]}" for name in BLAS_THREADS} <= set(given.read_text().split("\0"))
    finally:
        child.end()
