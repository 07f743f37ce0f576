"""What a student sees: progress while the checks run, then the summary.

On a terminal a live display shows each stage and the running check. Where nobody watches (no terminal, or NO_COLOR is
set) every finished check is one plain line instead.
"""

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from grader.failure import NO_ANSWER
from grader.report.results import Plan, Record, stage_status
from grader.report.summary import cut, grid, summary, word
from grader.text import clean_line

PLAIN_WIDTH = 100
"""Columns where there is no terminal that has a width; the environment variable COLUMNS overrides it."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read has gone, as after `| head`: go on without showing anything."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()


class Terminal:
    """Shows one grading on a stream. `plain` means no colour and nothing that moves; it is found out when None."""

    def __init__(self, stream: TextIO | None = None, *, plain: bool | None = None, width: int | None = None) -> None:
        stream = stream or sys.stdout
        watched = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._plain = plain if plain is not None else not watched or bool(os.environ.get("NO_COLOR"))
        if not watched and width is None and not os.environ.get("COLUMNS", "").isdigit():
            width = PLAIN_WIDTH
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for what it lacks
        self._console = _Console(
            file=stream,
            width=width,
            color_system=None if self._plain else "auto",
            force_terminal=None if self._plain else True,
            no_color=self._plain,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live: Live | None = None
        self._progress = Progress(())

    def start(self, plan: Plan, heading: str = "") -> None:
        """Begin: the stages and checks that will run, and a line that says of what."""
        self._progress = Progress(plan)
        if heading:
            self._console.print(Text(clean_line(heading)), soft_wrap=True)
        if not self._plain:
            self._live = Live(
                get_renderable=lambda: self._progress.display(self._console.height),
                console=self._console,
                refresh_per_second=8,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def check_started(self, check_id: str, title: str = "") -> None:
        """A check begins."""
        self._progress.begin(check_id, title)

    def check_finished(self, record: Record) -> None:
        """A check has its verdict."""
        self._progress.end(record)
        if self._plain:
            told = record.title if record.verdict == "PASSED" else record.message or record.title
            line = f"{record.id:6}  {record.verdict:18}  {seconds(record.seconds)}  {clean_line(told)}"
            self._console.print(Group(cut(line)))

    def finish(self, results: Mapping[str, Any]) -> None:
        """The end: what failed, what is next, the table of points, the verdict on the whole."""
        self.stop()
        self.show(*summary(results, self._progress.stages))

    def show(self, *parts: RenderableType) -> None:
        """Print what is made for this stream's width and colours."""
        self._console.print(Group(*parts))

    def stop(self) -> None:
        """Take the live display away, as after an interruption; harmless when there is none."""
        if self._live:
            self._live.stop()
            self._live = None


class Progress:
    """What has run, what runs and what waits."""

    def __init__(self, plan: Plan) -> None:
        self.stages = {stage.id: stage for stage, _ in plan}
        self._sizes = {stage.id: len(checks) for stage, checks in plan}
        self._records: dict[str, list[Record]] = {stage.id: [] for stage, _ in plan}
        self._running = ("", "")
        self._began = self._check_began = time.monotonic()

    def begin(self, check_id: str, title: str) -> None:
        self._running = (check_id, clean_line(title))
        self._check_began = time.monotonic()

    def end(self, record: Record) -> None:
        self._records[record.id.partition(".")[0]].append(record)
        self._running = ("", "")

    def display(self, height: int) -> RenderableType:
        """The stages around the running one, as many as fit, then the running check and how far all is."""
        current = self._running[0].partition(".")[0]
        ids = list(self.stages)
        room = max(1, height - 4)
        position = ids.index(current) if current in ids else 0
        first = max(0, min(position - room // 2, len(ids) - room))
        table = grid(5)
        for stage_id in ids[first : first + room]:
            table.add_row(stage_id, *self._stage_row(stage_id, stage_id == current))
        return Group(table, Text(""), self._check_row())

    def _stage_row(self, stage_id: str, running: bool) -> tuple[Text, Text, str, str]:
        records, size = self._records[stage_id], self._sizes[stage_id]
        verdicts = [record.verdict for record in records]
        failed = sum(verdict not in ("PASSED", *NO_ANSWER) for verdict in verdicts)
        state = (
            Text("running", "bold") if running else word(stage_status(verdicts)) if records else Text("waiting", "dim")
        )
        counts = f"{len(records)} of {size}" + (f", {failed} failed" if failed else "")
        spent = sum(record.seconds for record in records) + (time.monotonic() - self._check_began) * running
        return Text(self.stages[stage_id].title), state, counts, seconds(spent) if records or running else ""

    def _check_row(self) -> Text:
        done = sum(len(records) for records in self._records.values())
        total = f"{done} of {sum(self._sizes.values())} checks, {time.monotonic() - self._began:.0f} s"
        return cut((f"{total}  ", "dim"), (self._running[0], "bold"), "  ", self._running[1])


def seconds(value: float) -> str:
    return f"{value:5.1f} s"
