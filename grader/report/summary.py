"""The end of a grading in words: what failed first in each stage, what to write next, the table of points.

Made of rich renderables from results.json (and the manifest's stages, for what builds on what). Text that came from a
submission is cleaned and enters as `Text`, which rich never reads as markup.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from grader.failure import NO_ANSWER
from grader.ipc.output import MORE
from grader.judge.compare import SUSPECTED, tolerance
from grader.manifest import Stage
from grader.text import clean, clean_line, join_names

STYLES = {"PASSED": "green", "NOT_IMPLEMENTED": "cyan", "INCOMPLETE": "cyan", "SKIPPED": "yellow", "NOT_RUN": "yellow"}
"""Colour of a verdict or status; all others are red. The word itself always stands there too."""

SECTIONS = {
    "OUT_OF_BOUNDS": "Out of bounds", "DATA_RACE": "Data race", "UNINITIALISED_READ": "Uninitialised read",
    "BARRIER_DIVERGENCE": "Divergent barrier",
}  # fmt: skip
"""Of the handouts' page on debugging, which explain what the emulator finds in kernels."""

TOLD_CHARACTERS = 240
LOG_LINES, LAST_LINES = 24, 3
_MORE = re.compile(re.escape(MORE.strip()).replace(r"\{\}", r"(\d+)"))
MAP_ROWS, MAP_COLUMNS = 8, 60

Result = Mapping[str, Any]


def summary(results: Result, stages: Mapping[str, Stage]) -> Iterator[RenderableType]:
    """All that is shown at the end, in order; `stages` are those of the manifest by their ids."""
    failing = {stage["id"]: failures(stage)[0]["id"] for stage in results["stages"] if failures(stage)}
    for stage in results["stages"]:
        if stage["id"] in failing:
            earlier = [failing[name] for name in stages[stage["id"]].requires if name in failing]
            yield from stage_failures(stage, earlier[0] if earlier else None)
    yield from untried(results)
    yield from remarks(results)
    yield from outputs(results)
    yield from (Text(""), points_table(results))
    yield from conclusion(results, stages)


def failures(stage: Result) -> list[Result]:
    """Its checks that were tried and failed."""
    return [check for check in stage["checks"] if check["verdict"] not in ("PASSED", *NO_ANSWER)]


def word(verdict: str) -> Text:
    return Text(verdict, STYLES.get(verdict, "bold red"))


def cut(*parts: str | Text | tuple[str, str]) -> Text:
    """One line that is cut at the right, never wrapped."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def grid(columns: int) -> Table:
    """A table without lines, whose last column alone gives way when the terminal is narrow."""
    table = Table.grid(padding=(0, 2))
    for _ in range(columns - 1):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def stage_failures(stage: Result, earlier: str | None) -> Iterator[RenderableType]:
    """The block of a stage's first failure, then for each other kind of failure what was checked and the result."""
    groups: dict[Any, list[Result]] = {}
    for check in failures(stage):
        groups.setdefault(cause(check), []).append(check)
    (first, *same), *others = groups.values()
    yield Text.assemble("\n", (first["id"], "bold"), "  ", word(first["verdict"]))
    yield failure_block(first, same, earlier)
    if others:
        yield Text(f"\n  also failed in {stage['id']}")
        table = grid(3)
        for check, *alike in others:
            told = clean_line(check["message"], TOLD_CHARACTERS) + (f" (the same in {ids(alike)})" if alike else "")
            title = (f"{clean_line(check['title'], TOLD_CHARACTERS)}\n", "dim")
            hint = clean_line(check["evidence"].get("hint", ""))
            advice = (f"\nhint: {hint}", "bold") if hint else ""
            table.add_row("  " + check["id"], word(check["verdict"]), Text.assemble(title, told, advice))
        yield table


def cause(check: Result) -> tuple[Any, ...]:
    """What is equal for two checks that failed in the same way: the same lines, mistake of a kernel, or sentence."""
    reports = check["evidence"].get("reports")
    if isinstance(reports, list):
        return check["verdict"], *((place["file"], place["line"]) for place in places(reports[0]))
    if check["verdict"] == "TIMEOUT":
        return check["verdict"], str(check["evidence"].get("case", "")).partition("(")[0]
    hint = str(check["evidence"].get("hint", ""))
    return check["verdict"], hint if hint.startswith(SUSPECTED) else check["message"]


def ids(checks: Sequence[Result]) -> str:
    return join_names([check["id"] for check in checks])


def places(report: Result) -> list[Result]:
    """Where the accesses of a report are in the source."""
    return [place for place in (report["access"], report["other"]) if place]


def failure_block(check: Result, same: Sequence[Result], earlier: str | None) -> Table:
    """Everything known of one failure, a labelled row each; `same` failed in the same way."""
    table = grid(2)
    for label, text in failure_rows(check, same, earlier):
        if text:
            table.add_row(Text(f"  {label}", "dim"), Text(text, "bold" if label in ("hint", "repeat") else ""))
    return table


def failure_rows(check: Result, same: Sequence[Result], earlier: str | None) -> Iterator[tuple[str, str]]:
    evidence = check["evidence"]
    yield "check", clean_line(check["title"])
    if earlier:
        yield "before", f"{earlier} failed, and this stage calls what it tests: repair that first."
    yield "called", clean(evidence.get("case", ""), 800)
    yield "shrunk", clean(evidence.get("drawn", ""), 800)
    yield "result", clean(check["message"], 2000)
    yield "source", shown_source(evidence)
    if evidence.get("worst") != evidence.get("first"):
        yield "worst", wrong_value(evidence["worst"])
    yield "hint", clean_line(evidence.get("hint", ""))
    yield "remark", "\n".join(map(clean_line, evidence.get("remarks", ())))
    if isinstance(evidence.get("map"), Mapping) and 1 < evidence["wrong"] < evidence["total"]:
        yield "where", drawn_map(evidence["map"])
    yield "output", first_lines(clean(evidence.get("log", ""), 16_000))
    yield "same", f"in {ids(same)}" if same else ""
    if "reports" in evidence and check["verdict"] in SECTIONS:
        yield "read", f'assignments/debugging.md, "{SECTIONS[check["verdict"]]}"'
    yield "repeat", clean_line(check["repro"])


def shown_source(evidence: Result) -> str:
    """The lines of the kernel that the result is about."""
    lines, reports = evidence.get("source"), evidence.get("reports")
    if isinstance(reports, list):
        lines = sorted({(place["line"], place["text"]) for place in places(reports[0]) if place["text"]})
    if not isinstance(lines, list):
        return ""
    return "\n".join(f"{line:4} | {clean_line(text, 160)}" for line, text in lines)


def wrong_value(example: Result) -> str:
    """One wrong value, or one wrong row of values, in words."""
    index = f"[{', '.join(str(i) for i in example['index'])}]"
    if "error" in example:
        return f"{example['name']}{index}, rms error {example['error']} (allowed {example['allowed']})"
    return f"{example['name']}{index} = {example['got']}, want {example['want']} ({tolerance(example)})"


def drawn_map(wrong: Result) -> str:
    """Where the wrong values lie, as a few lines of marks, and what a mark stands for."""
    counts = np.array(wrong["counts"])
    lengths = zip((wrong["rows"], wrong["columns"]), counts.shape, strict=True)
    sizes = [np.bincount(np.arange(length) * cells // length) for length, cells in lengths]
    depth = wrong.get("depth", 1)
    counts, values = (_fold(_fold(table, MAP_ROWS).T, MAP_COLUMNS).T for table in (counts, depth * np.outer(*sizes)))
    marks = np.where(counts == 0, ".", np.where(counts < values, "+", "#"))
    words = ("token", "head") if depth > 1 else ("", "value")
    seen = f"{plural(wrong['rows'], words[0])} x {plural(wrong['columns'], words[1])}"
    legend = f"{seen}: . right, + partly wrong, # wrong"
    return "\n".join([*("".join(line) for line in marks), legend])


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}" if noun else str(count)


def _fold(table: NDArray[Any], most: int) -> NDArray[Any]:
    """Sums of neighbouring rows, so that at most so many rows remain."""
    rows = min(len(table), most)
    return np.add.reduceat(table, np.arange(rows) * len(table) // rows, axis=0)


def first_lines(log: str) -> str:
    """The first lines of what was printed and the last few, repeated ones once: a compiler's first error matters."""
    runs = [(line, len(list(run))) for line, run in groupby(log.strip("\n").split("\n"))]
    lines = [f"{line} … ({count} times)" if count > 1 else line for line, count in runs]
    if len(lines) <= LOG_LINES:
        return "\n".join(lines)
    hidden = lines[LOG_LINES - LAST_LINES : -LAST_LINES]
    count = sum(int(found[1]) if (found := _MORE.fullmatch(line)) else 1 for line in hidden)
    more = f"… {count:,} more line{'s' if count > 1 else ''} …"
    return "\n".join([*lines[: LOG_LINES - LAST_LINES], more, *lines[-LAST_LINES:]])


def untried(results: Result) -> Iterator[RenderableType]:
    """For each verdict of an untried check a line per stage, with what is to write next or the reason."""
    for verdict in NO_ANSWER:
        table = grid(3)
        for stage in results["stages"]:
            checks = [check for check in stage["checks"] if check["verdict"] == verdict]
            if checks:
                number = f"{len(checks)} check{'s' if len(checks) > 1 else ''}"
                table.add_row(f"  {stage['id']}", number, Text(next_step(checks[0], results["submission"])))
        if table.row_count:
            yield from (Text.assemble("\n", word(verdict)), table)


def remarks(results: Result) -> Iterator[RenderableType]:
    """What is worth knowing of checks that passed."""
    table = grid(2)
    for stage in results["stages"]:
        for check in stage["checks"]:
            for remark in check["evidence"].get("remarks", ()) if check["verdict"] == "PASSED" else ():
                table.add_row(f"  {check['id']}", Text(clean_line(remark)))
    if table.row_count:
        yield from (Text.assemble("\n", ("Remarks", "bold"), ", which cost no points"), table)


def outputs(results: Result) -> Iterator[RenderableType]:
    """What a check that passed printed; of several checks only which ones printed something."""
    checks = [check for stage in results["stages"] for check in stage["checks"]]
    for stage in results["stages"]:
        printed = [c for c in stage["checks"] if c["verdict"] == "PASSED" and c["evidence"].get("log")]
        if not printed:
            continue
        told = f"Your code printed something in {ids(printed)}: {clean_line(printed[0]['repro'])} shows it."
        if len(checks) == 1:
            told = f"{ids(printed)} printed\n{first_lines(clean(printed[0]['evidence']['log'], 16_000))}"
        yield Text(f"\n{told}")


def next_step(check: Result, submission: str) -> str:
    """What to write and where, or why the check was not tried."""
    stubs = check["evidence"].get("stubs")
    if check["verdict"] != "NOT_IMPLEMENTED" or not stubs:
        return clean_line(check["message"])
    stub = stubs[0]
    return clean_line(f"write {stub['id']} in {submission}/engine/{stub['file']}:{stub['line']}")


def points_table(results: Result) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, show_footer=True)
    table.add_column("Stage", "Total", no_wrap=True, overflow="ellipsis", max_width=40)
    table.add_column("Points", f"{results['total']:g} / {results['max']:g}", justify="right", no_wrap=True)
    table.add_column("Status", no_wrap=True)
    table.add_column("Passed", no_wrap=True)
    for stage in results["stages"]:
        passed = sum(check["verdict"] == "PASSED" for check in stage["checks"])
        title = Text(f"{stage['id']}  {clean_line(stage['title'])}")
        points = f"{stage['points']:g} / {stage['max']:g}"
        table.add_row(title, points, word(stage["status"]), f"{passed} of {len(stage['checks'])}")
    return table


def conclusion(results: Result, stages: Mapping[str, Stage]) -> Iterator[RenderableType]:
    """The last lines: how it went, and where to go on when nothing is wrong but something is missing."""
    checks = [check for stage in results["stages"] for check in stage["checks"]]
    verdicts = [check["verdict"] for check in checks]
    points = f"{results['total']:g} of {results['max']:g} points"
    if all(verdict == "PASSED" for verdict in verdicts):
        whole = all(len(stage["checks"]) == len(stages[stage["id"]].checks) for stage in results["stages"])
        which = f"all {results['mode']} checks passed" if whole else f"the chosen {results['mode']} checks passed"
        yield Text(f"\n{which}: {points}", "bold green")
        return
    counts = {"passed": verdicts.count("PASSED"), "failed": sum(v not in ("PASSED", *NO_ANSWER) for v in verdicts)}
    counts |= {verdict.lower().replace("_", " "): verdicts.count(verdict) for verdict in NO_ANSWER}
    told = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    yield Text(f"\n{points}: {told}", "bold")
    missing = next((check for check in checks if check["verdict"] == "NOT_IMPLEMENTED"), None)
    if missing and not counts["failed"]:
        handout = stages[missing["id"].partition(".")[0]].handout
        yield Text(f"Next: {next_step(missing, results['submission'])}\nRead: assignments/{handout}")
