"""Ctrl-C that lets what runs come to an end first."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(stop: Callable[[], None], *others: signal.Signals) -> Iterator[None]:
    """Let Ctrl-C, and `others`, call `stop` in place of breaking off; a second one is a KeyboardInterrupt.

    A signal that is ignored stays so: a shell ignores Ctrl-C for what a script runs in the background.
    """
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        stop()

    heeded = [n for n in (signal.SIGINT, *others) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
