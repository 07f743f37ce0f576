"""Starts device processes (device/process.py) and speaks to them on a socket of its own, apart from their users.

The grader starts one for each worker and hands it to that worker through the environment variable PAGEDLAB_DEVICE,
"socket:memory:bytes" with two inherited file descriptors; the control socket stays with the grader. A program without
that variable starts its own.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from grader import KIT
from grader.emulator.compiler.toolchain import remove_unfinished
from grader.ipc.framing import ProtocolError, receive_frame, send_frame
from grader.ipc.output import KeptOutput

ARENA_BYTES = 256 << 30  # address space of the device, sparse; its memory is `capacity`
CAPACITY = 24 << 30  # what the GPU of compute capability 8.6 has that many own, an RTX 3090
CONTROL_SECONDS = 60.0
COMPILE_SECONDS = 300.0  # for instrumented builds of everything that was compiled
END_SECONDS = 2.0
MAX_CORES = 24  # each has up to 1,024 stacks of two mappings; Linux allows a process 65,530
MAX_ANSWER = 64 << 20
PASSED_ON = ("PATH", "CXX", "PAGEDLAB_CACHE", "HOME", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "SDKROOT")
"""Environment variables that a device process gets: kernels are native code and need no others."""


class DeviceError(ConnectionError):
    """The device process is gone, or answered nonsense."""


class Control:
    """What the owner of a device process asks of it; no program that uses the device reaches this socket."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._crash: str | None = None

    def set_mode(self, empty: bool | None = None, order_seed: int | None = None) -> None:
        """Run empty kernels, order threads by a seed; None leaves a setting as it is."""
        settings = {"empty": empty, "order_seed": order_seed}
        self._request({"verb": "set_mode"} | {name: value for name, value in settings.items() if value is not None})

    def observe(
        self,
        *,
        counted: bool = False,
        checked: bool = False,
        profiled: bool = False,
        change: tuple[int, float] | None = None,
    ) -> None:
        """Begin anew to count what the device does; with `counted` what each kernel does, and memory accesses, too.

        With `checked`, kernels are watched for what they must not do; see reports.py. With `counted` and `profiled`,
        what each instruction of a kernel does is told too. With `change`, a row of one output is changed, see
        device/intervention.py.
        """
        asked = {"counted": counted, "checked": checked, "profiled": profiled, "change": change}
        self._request({"verb": "observe"} | asked, COMPILE_SECONDS)

    def observed(self) -> dict[str, Any]:
        """What was counted since `observe`, or the start: see device/process.py."""
        return self._request({"verb": "observed"})

    def limit_memory(self, limit: int | None) -> None:
        """Let no allocation succeed with which more than `limit` bytes would be in use; None: the whole capacity."""
        self._request({"verb": "limit", "bytes": limit})

    def first_written(self, pointer: int, size: int, skipped: list[tuple[int, int]]) -> int | None:
        """The offset of the first byte at a pointer that is not 0, apart from these ranges of offsets, which ascend."""
        request = {"verb": "first_written", "ptr": pointer, "bytes": size, "except": skipped}
        offset: int | None = self._request(request)["offset"]
        return offset

    def crash_report(self) -> str | None:
        """Where a kernel crashed the device process; None if that has not happened. Never waits."""
        with contextlib.suppress(OSError):
            self._channel.setblocking(False)
            if self._crash is None and self._channel.recv(1, socket.MSG_PEEK):
                self._receive()
        return self._crash

    def close(self) -> None:
        self._channel.close()

    def _request(self, message: dict[str, Any], seconds: float = CONTROL_SECONDS) -> dict[str, Any]:
        try:
            send_frame(self._channel, message, deadline=time.monotonic() + CONTROL_SECONDS)
        except OSError:
            raise DeviceError(self.crash_report() or "the device process is gone") from None
        return self._receive(seconds)

    def _receive(self, seconds: float = CONTROL_SECONDS) -> dict[str, Any]:
        try:
            answer = receive_frame(self._channel, MAX_ANSWER, 0, time.monotonic() + seconds)[0]
        except (OSError, EOFError, ProtocolError) as error:
            raise DeviceError(f"the device process gives no answer ({error})") from None
        if "crash" in answer:
            self._crash = str(answer["crash"])
            raise DeviceError(self._crash)
        return answer


class DeviceProcess:
    """A running device process: `control` stays with its owner, `environment` and `pass_fds` go to its one user.

    An owner that uses the device itself speaks on `channel`; `arena` is the file that holds the device's memory.
    """

    def __init__(self, cores: int, capacity: int, inherit_output: bool, debug: bool) -> None:
        self.arena_bytes = ARENA_BYTES
        self.arena = _sparse_file(ARENA_BYTES)
        self.channel, client_end = socket.socketpair()
        ours, control_end = socket.socketpair()
        self.control = Control(ours)
        inherited = [client_end.fileno(), control_end.fileno(), self.arena]
        arguments = map(str, [*inherited, ARENA_BYTES, capacity, cores])
        passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        with client_end, control_end:
            self.process = subprocess.Popen(
                [sys.executable, "-E", "-s", "-B", "-m", "grader.emulator.device.process", *arguments],
                cwd=KIT,
                env=passed_on | {"LC_ALL": "C.UTF-8", "PAGEDLAB_DEBUG_KERNELS": str(int(debug))},
                stdin=subprocess.DEVNULL,
                stdout=None if inherit_output else subprocess.PIPE,
                stderr=None if inherit_output else subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the program that uses the device
                pass_fds=inherited,
            )
        self._output = KeptOutput(self.process.stdout) if self.process.stdout else None

    def environment(self) -> dict[str, str]:
        """What to add to the environment of the one process that uses this device."""
        return {"PAGEDLAB_DEVICE": f"{self.channel.fileno()}:{self.arena}:{self.arena_bytes}"}

    @property
    def pass_fds(self) -> list[int]:
        """The file descriptors that this process must inherit."""
        return [self.channel.fileno(), self.arena]

    def printed(self) -> str:
        """What kernels and compilers printed, the first and last lines, where the output is not inherited."""
        return self._output.text() if self._output else ""

    def forget_printed(self) -> None:
        """Let `printed` begin anew."""
        if self._output:
            self._output.forget()

    def kill(self) -> None:
        """End the process at once, whatever it does, and what it started."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            remove_unfinished(self.process.pid)
        self.channel.close()
        self.control.close()
        if self.arena >= 0:
            os.close(self.arena)
            self.arena = -1

    def close(self) -> None:
        """Let the process end by itself, as it does when its user is gone, and wait for that."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        self.kill()


def start_device(
    cores: int | None = None, capacity: int = CAPACITY, *, inherit_output: bool = False, debug: bool = False
) -> DeviceProcess:
    """Start an emulated GPU that runs blocks on `cores` threads (None: one a usable core, MAX_CORES at most).

    `capacity` is its memory in bytes, which costs nothing until it is used. What kernels print is kept for `printed`,
    or with `inherit_output` goes where this process prints. With `debug` a debugger may attach to the process and finds
    kernels as they were written. Raises OSError when no process can be started.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return DeviceProcess(cores or min(usable, MAX_CORES), capacity, inherit_output, debug)


def _sparse_file(size: int) -> int:
    """A file of `size` bytes without a name that takes no space until it is written."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pagedlab-device")
    else:
        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    os.ftruncate(descriptor, size)
    return descriptor
