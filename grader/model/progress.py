"""Progress bars of long steps; where nobody watches, a line at the start of each step."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int, int], None]
"""Takes how much is done, and how much there is to do."""


@contextmanager
def progress(what: str, *, in_bytes: bool = False) -> Iterator[Advance]:
    """Shows a step's progress on stderr until the block ends."""
    if not sys.stderr.isatty():
        print(f"{what} …", file=sys.stderr, flush=True)
        yield lambda done, total: None
        return
    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(what, total=None)
        yield lambda done, total: display.update(task, completed=min(done, total), total=total)
