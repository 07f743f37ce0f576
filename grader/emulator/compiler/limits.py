"""Limits of the compiler: they hold for every process that a command starts, also when the one that waits is killed."""

from collections.abc import Sequence

COMPILE_SECONDS = 60
"""Of processor time."""
WAITING_SECONDS = 300
"""On the clock: a busy machine is no fault of the source."""
MAX_MEMORY = 4 << 30


def limited(command: Sequence[str], seconds: int = COMPILE_SECONDS, memory: int = MAX_MEMORY) -> list[str]:
    """The command, with so much processor time and so many bytes for each of its processes.

    A system that does not know one of the two limits goes without it.
    """
    limits = f"ulimit -t {seconds} 2>/dev/null; ulimit -v {memory >> 10} 2>/dev/null"
    return ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh", *command]
