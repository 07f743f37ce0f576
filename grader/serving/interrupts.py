"""Ctrl-C that lets what runs come to an end first."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(stop: Callable[[], None], *others: signal.Signals) -> Iterator[None]:
    """Ctrl-C, and `others`, call `stop` in place of breaking off; a second one is a KeyboardInterrupt."""
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        stop()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, *others)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
