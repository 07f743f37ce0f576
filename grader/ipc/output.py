"""Keeps what a process prints: of a flood of lines the first, and the last few, which may say why it ended."""

import os
import select
import threading
import time
from collections.abc import Callable
from typing import IO

KEPT_BYTES, LAST_BYTES = 8192, 1024
LATEST_SECONDS = 0.2
LINE = b"\n"
MORE = "… {} more lines\n"
"""Stands for the lines that are not kept."""


class KeptOutput:
    """Reads a stream to its end, in a thread; keeps the first and last whole lines and the number of the others."""

    def __init__(self, stream: IO[bytes], told: Callable[[int], None] = lambda total: None) -> None:
        """`told` gets the number of all bytes until now, again and again."""
        self._stream = stream
        self._told = told
        self._lock = threading.Lock()
        self.forget()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """What was printed since `forget`; waits a moment for what is still in the pipe."""
        deadline = time.monotonic() + LATEST_SECONDS
        while self._thread.is_alive() and self._is_waiting() and time.monotonic() < deadline:
            time.sleep(0.002)
        with self._lock:
            kept, last, lines, total = self._kept, self._last, self._lines, self._total
        if total > len(kept):
            kept = kept[: kept.rfind(LINE) + 1] or kept
            last = last.partition(LINE)[2] if len(kept) + len(last) < total else last[len(kept) - total :]
            left_out = lines - (kept + last).count(LINE)
            kept += (MORE.format(left_out).encode() if left_out else b"") + last
        return kept.decode("utf-8", "replace")

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self._kept, self._last, self._lines, self._total = b"", b"", 0, 0

    def _is_waiting(self) -> bool:
        with self._lock:  # what was read is kept by now
            return _poll(self._stream, 0)

    def _drain(self) -> None:
        printed = 0
        with self._stream as stream:
            while _poll(stream, None):
                with self._lock:
                    chunk = os.read(stream.fileno(), 65536)
                    self._kept += chunk[: KEPT_BYTES - len(self._kept)]
                    self._last = (self._last + chunk)[-LAST_BYTES:]
                    self._lines += chunk.count(LINE)
                    self._total += len(chunk)
                if not chunk:
                    break
                printed += len(chunk)
                self._told(printed)


def _poll(stream: IO[bytes], milliseconds: int | None) -> bool:
    """Whether something can be read from a stream, or its end is there; None waits for that."""
    poll = select.poll()
    try:
        poll.register(stream, select.POLLIN)
    except ValueError:  # it was closed
        return False
    return bool(poll.poll(milliseconds))
