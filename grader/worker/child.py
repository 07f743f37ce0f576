"""Starts the processes that run a submission (a worker and, on the emulator, its device process) and ends them.

Each worker gets a private folder as home and current folder, a clean environment, a process group of its own and one
socket; everything that it prints is read, bounded and kept apart from its answers.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from grader import BLAS_THREADS
from grader.emulator.launcher import DeviceProcess, start_device
from grader.failure import Failure
from grader.ipc.framing import receive_frame, send_frame
from grader.ipc.output import KeptOutput

WORKER = Path(__file__).resolve().parent / "main.py"
MAX_HEADER = 8 << 20  # a token in a list takes 15 bytes, and a trace has 150,000
MAX_OUTPUT = 16 << 20

PASSED_ON = (
    "PATH",
    "CXX",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDA_VISIBLE_DEVICES",
    *BLAS_THREADS,
)
"""Environment variables of ours that a worker gets; it sees no other."""

_CLEAN_UP_WARNING = re.compile(r"PyCUDA WARNING: a clean-up operation failed.*\n.*\n?")
"""What PyCUDA prints for every array that outlives a failed kernel."""


class Child:
    """One running worker, with its device process on the emulator; `home` is its private folder."""

    def __init__(self, *, emulated: bool) -> None:
        """Start both; raises OSError when the machine refuses."""
        self.home = Path(tempfile.mkdtemp(prefix="pagedlab-"))
        self.device: DeviceProcess | None = None
        ours, theirs = socket.socketpair()
        try:
            environment, inherited = _environment(self.home), [theirs.fileno()]
            if emulated:
                self.device = start_device()
                environment |= self.device.environment()
                inherited += self.device.pass_fds
            command = [sys.executable, "-IBu", str(WORKER), str(theirs.fileno())]
            self.process = subprocess.Popen(
                [*command, "emulated" if emulated else "gpu"],
                cwd=self.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=inherited,
            )
        except BaseException:
            ours.close()
            self._remove()
            raise
        finally:
            theirs.close()
        self.socket = ours
        self._flooded = False
        assert self.process.stdout is not None
        self._output = KeptOutput(self.process.stdout, self._stop_flood)

    def exchange(
        self, header: dict[str, Any], payload: bytes, largest: int, deadline: float
    ) -> tuple[dict[str, Any], memoryview]:
        """One request and its answer of at most `largest` bytes.

        Raises TimeoutError, ProtocolError, or EOFError and OSError when the worker is gone.
        """
        send_frame(self.socket, header, payload, deadline)
        answer, data = receive_frame(self.socket, MAX_HEADER, largest, deadline)
        return answer, memoryview(data)

    def is_compiling(self) -> bool:
        """Whether the worker or its device process has a child: a compiler."""
        parents = {self.process.pid} | ({self.device.process.pid} if self.device is not None else set())
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            listed = subprocess.run(["ps", "-A", "-o", "ppid="], capture_output=True, text=True, check=True, timeout=5)
            return not parents.isdisjoint(map(int, listed.stdout.split()))
        return False

    def memory(self) -> int:
        """Bytes of memory that the worker holds; on Linux without those of mapped files."""
        with contextlib.suppress(FileNotFoundError):
            _, resident, shared, *_ = Path(f"/proc/{self.process.pid}/statm").read_text().split()
            return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
        kilobytes = subprocess.run(["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, check=True)
        return 1024 * int(kilobytes.stdout)

    def printed(self) -> str:
        """What worker and device process printed since `forget_printed`, the first and last lines."""
        text = self.device.printed() if self.device is not None else ""
        return _CLEAN_UP_WARNING.sub("", self._output.text()) + text

    def forget_printed(self) -> None:
        self._output.forget()
        if self.device is not None:
            self.device.forget_printed()

    def _stop_flood(self, total: int) -> None:
        if total > MAX_OUTPUT and not self._flooded:
            self._flooded = True
            kill_group(self.process)

    def end(self) -> None:
        """Kill everything that was started and remove the private folder."""
        self.socket.close()
        kill_group(self.process)
        self.process.wait()
        self._remove()

    def death(self) -> Failure:
        """Why the worker ended, as a failure of the running check; call it before `end`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        if self._flooded:
            return Failure("RUNTIME_ERROR", f"The code printed more than {MAX_OUTPUT >> 20} MiB; remove the prints.")
        code = self.process.poll()
        if code is None:
            return Failure("CRASHED", "The process that runs the code closed its connection.")
        if code >= 0:
            return Failure(
                "CRASHED", f"The process that runs the code ended itself (exit code {code}) during the call."
            )
        return Failure("CRASHED", f"The process that runs the code was ended by {_signal_name(-code)}.")

    def _remove(self) -> None:
        if self.device is not None:
            self.device.kill()
        shutil.rmtree(self.home, ignore_errors=True)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and all others of its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    cache = home / "cache"
    cache.mkdir()  # PyCUDA makes only its default cache folder itself
    return kept | {"HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8", "PYCUDA_CACHE_DIR": str(cache)}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
