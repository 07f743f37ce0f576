"""This process's connection to the emulated GPU: messages to the device process, and its memory, mapped here as well.

Launches are one-way messages; what a kernel did wrong is known at the next synchronisation, and from then on every call
fails, as on a GPU. Copies between host and device go straight through the shared memory once nothing is outstanding.
"""

import atexit
import importlib.util
import mmap
import os
import socket
import sys
import threading
from bisect import bisect_right, insort
from pathlib import Path
from typing import Any

from pycuda._driver import INVALID_CONTEXT, INVALID_VALUE, NOT_INITIALIZED, Error, failure

if importlib.util.find_spec("grader") is None:  # a program that has only the emulated pycuda on its path
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from grader.ipc.framing import ProtocolError, encode_header, pack_frame, receive_frame

MAX_ANSWER = 16 << 20  # bytes of an answer; a compiler's messages are the longest
STICKY = (700, 710, 716, 719)  # CUDA's errors after which a context is of no more use


class DeviceConnection:
    """Talks to one device process, whose memory is the file `arena`; `own` is its DeviceProcess if we started it."""

    def __init__(self, channel: socket.socket, arena: int, arena_bytes: int, own: Any = None) -> None:
        self.error: tuple[int, str, str] | None = None  # of an earlier kernel: CUDA's number, its text, ours
        self.closed = False
        self.compiled: dict[bytes, tuple[dict[str, Any], dict[str, Any] | None]] = {}
        """By binary, the request that made it, and the module that came of it until it is loaded."""
        self._channel = channel
        self._own = own
        self._outstanding = False
        self._lock = threading.RLock()  # a garbage collection may free memory in the middle of a request
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self.properties = self.request("cuInit", {"verb": "hello"})
        if error := self.properties.get("error"):
            raise failure("cuInit", error["code"], error["text"], error["detail"])
        self.base: int = self.properties["base"]
        self.memory = memoryview(mmap.mmap(arena, arena_bytes))

    def send(self, header: dict[str, Any]) -> None:
        """Send one message that has no answer."""
        self.send_frame(pack_frame(encode_header(header)))

    def send_frame(self, frame: bytes) -> None:
        self._outstanding = True
        self._send(frame)

    def _send(self, frame: bytes) -> None:
        with self._lock:
            try:
                self._channel.sendall(frame)
            except BaseException as error:
                self._interrupted(error)

    def request(self, function: str, header: dict[str, Any], before: bytes = b"") -> dict[str, Any]:
        """Send one message and wait for its answer; `function` is the driver's name for it, for errors.

        `before` is the frame of another message that has no answer and goes ahead.
        """
        with self._lock:
            try:
                self._channel.sendall(before + pack_frame(encode_header(header)))
                return receive_frame(self._channel, MAX_ANSWER, 0)[0]
            except BaseException as error:
                self._interrupted(error)
        self.check(function)
        raise AssertionError

    def synchronize(self, function: str, copied: bytes = b"") -> None:
        """Wait until everything sent so far is done; raises what went wrong in it.

        `copied` is the frame that reports a copy, which costs the least beside this message.
        """
        self.check(function)
        if not self._outstanding:
            if copied:
                self._send(copied)
            return
        self._outstanding = False
        if error := self.request(function, {"verb": "sync"}, copied)["error"]:
            report = error["code"], error["text"], error["detail"]
            if error["code"] in STICKY:
                self.error = report
            raise failure("cublasGemmEx" if error["name"].startswith("CUBLAS") else function, *report)

    def check(self, function: str) -> None:
        """Raise what went wrong in an earlier kernel, if that is known."""
        if self.error:
            raise failure(function, *self.error)

    def lose(self, reason: str) -> None:
        """From now on every call fails."""
        self.error = 0, "the emulated GPU stopped", reason

    def _interrupted(self, error: BaseException) -> None:
        if not isinstance(error, OSError | EOFError | ProtocolError):
            self.lose("an interrupted call left it in an unknown state")
            raise error
        report = self._own.control.crash_report() if self._own else None
        self.lose(report or "a kernel crashed it, or it was ended")

    def register(self, pointer: int, size: int) -> None:
        """Copies may touch these bytes from now on."""
        if pointer not in self._sizes:
            insort(self._starts, pointer)
        self._sizes[pointer] = size

    def free(self, pointer: int) -> None:
        self.check("cuMemFree")
        if self._sizes.pop(pointer, None) is not None:
            self._starts.remove(pointer)  # one step: a garbage collection may free more at any moment
        self.send({"verb": "free", "ptr": pointer})

    def check_range(self, function: str, pointer: int, size: int) -> None:
        """Raise LogicError unless `size` bytes at a device pointer lie in one allocation."""
        if not self._holds(pointer, size):
            raise failure(function, INVALID_VALUE)

    def bytes_to_copy(self, function: str, pointer: int, size: int, to: str) -> memoryview:
        """The bytes at a device pointer, for one copy `to` "device" or "host", once all work before is done.

        The device is told of the copy, for its counts. Raises LogicError outside an allocation.
        """
        copied = b""
        if size and self._holds(pointer, size):
            header = b'{"verb":"copied","to":"%s","ptr":%d,"bytes":%d}' % (to.encode(), pointer, size)
            copied = pack_frame(header)
        self.synchronize(function, copied)
        if not size:
            return self.memory[:0]
        self.check_range(function, pointer, size)
        return self.memory[pointer - self.base : pointer - self.base + size]

    def describe_array(self, pointer: int, size: int, is_written: bool) -> None:
        """Tell the device that an array lies there within its allocation, and whether it holds anything, for checks."""
        self.send({"verb": "array", "ptr": pointer, "bytes": size, "written": is_written})

    def _holds(self, pointer: int, size: int) -> bool:
        position = bisect_right(self._starts, pointer) - 1
        return position >= 0 and pointer + size <= self._starts[position] + self._sizes[self._starts[position]]

    def close(self) -> None:
        """The program ends: no message any more, no complaint."""
        self.closed = True
        self._channel.close()
        if self._own:
            self._own.close()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.contexts: list[Any] = []  # the thread's stack of driver.Context


thread = _Thread()
_connection: DeviceConnection | None = None


def initialize() -> None:
    """Connect to the device process that the environment names, or start one."""
    global _connection
    if _connection is not None:
        return
    given = os.environ.get("PAGEDLAB_DEVICE")
    if given:
        channel, arena, arena_bytes = map(int, given.split(":"))
        _connection = DeviceConnection(socket.socket(fileno=channel), arena, arena_bytes)
    else:
        from grader.emulator.launcher import start_device  # noqa: PLC0415  (a worker never starts one)

        own = start_device(inherit_output=True)
        _connection = DeviceConnection(own.channel, own.arena, own.arena_bytes, own)
    atexit.register(_connection.close)
    os.register_at_fork(after_in_child=lambda: _connection.lose("a forked process cannot use its parent's"))


def initialized(function: str) -> DeviceConnection:
    """The connection, for a call that needs no context."""
    if _connection is None:
        raise failure(function, NOT_INITIALIZED)
    return _connection


def current(function: str) -> DeviceConnection:
    """The connection, for a call that needs a current context in a good state."""
    connection = initialized(function)
    if not thread.contexts:
        raise failure(function, INVALID_CONTEXT)
    if connection.error:
        connection.check(function)
    return connection


def free_quietly(pointer: int) -> None:
    """Free memory that nothing refers to any more: never raises, and says nothing at the program's end."""
    if _connection is None or _connection.closed:
        return
    try:
        _connection.free(pointer)
    except Error as error:
        print(f"PyCUDA WARNING: a clean-up operation failed (dead context maybe?)\n{error}", file=sys.stderr)
