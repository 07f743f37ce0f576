"""What a student sees on the terminal, plain and live."""

import io
import re
from typing import Any

import pytest

from grader.ipc.output import MORE
from grader.manifest import Check, Stage
from grader.report.results import Record, build_results
from grader.report.terminal import Terminal


def stage(name: str, title: str, checks: int, requires: tuple[str, ...] = ()) -> Stage:
    needs = tuple(f"{stage}.1" for stage in (*requires, name))
    entries = tuple(Check(f"{name}.{number}", 1.0, needs, 20.0) for number in range(1, checks + 1))
    handout = f"{name[1:]}-{title.lower()}.md"
    return Stage(name, title, handout, float(checks), ("launch.toml",), entries)


SOFTMAX = stage("s05", "Softmax", 3)
ATTENTION = stage("s07", "Attention", 2, ("s05",))
PLAN = [(SOFTMAX, SOFTMAX.checks), (ATTENTION, ATTENTION.checks)]


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def record(check_id: str, verdict: str = "PASSED", message: str = "", **evidence: Any) -> Record:
    points = 1.0 if verdict == "PASSED" else 0.0
    repro = f"make grade CHECK={check_id} SEED=7"
    return Record(check_id, f"title of {check_id}", points, 1.0, verdict, message, 0.25, repro, evidence)


ALL_PASSED = [record(check.id) for _, checks in PLAN for check in checks]


def shown(*changed: Record, stream: io.StringIO | None = None, plan: Any = PLAN, **options: Any) -> str:
    """All that one grading prints; checks that are not given pass."""
    stream = stream or io.StringIO()
    planned = [check.id for _, checks in plan for check in checks]
    records = {passed.id: passed for passed in ALL_PASSED if passed.id in planned} | {one.id: one for one in changed}
    terminal = Terminal(stream, **options)
    terminal.start(plan, "PagedLab grades [bold]starter[/bold]")
    for one in records.values():
        terminal.check_started(one.id, one.title)
        terminal.check_finished(one)
    device = {"kind": "cpu", "name": "emulator"}
    terminal.finish(
        build_results(plan, records.values(), kit="0", submission="starter", device=device, confinement="none", seed=7)
    )
    return "\n".join(line.rstrip() for line in stream.getvalue().split("\n"))


WRONG = record(
    "s05.2",
    "INCORRECT_VALUE",
    "12 of 99 values are wrong. First: out[2, 5] = 0.131, want 0.125 (allowed error 0.0005).",
    case="softmax(out[3,33] f32, x[3,33] f32), block (256,1,1), grid (3,1,1), shared 0 B",
    drawn="rows=3, columns=33",
    wrong=12,
    total=99,
    first={"name": "out", "index": [2, 5], "got": "0.131", "want": "0.125", "allowed": "0.0005"},
    worst={"name": "out", "index": [2, 9], "got": "4", "want": "0.25", "allowed": "0.0005"},
    hint="Only the last row (2) is wrong.",
    map={"rows": 3, "columns": 33, "counts": [[0] * 33, [0] * 33, [0] * 5 + [1] * 12 + [0] * 16]},
)
STUBS = [{"id": "s07.1", "file": "kernels/attention.cu", "line": 31}]


def test_all_passed_is_said_of_public_checks() -> None:
    assert shown() == (
        """\
PagedLab grades [bold]starter[/bold]
s05.1   PASSED                0.2 s  title of s05.1
s05.2   PASSED                0.2 s  title of s05.2
s05.3   PASSED                0.2 s  title of s05.3
s07.1   PASSED                0.2 s  title of s07.1
s07.2   PASSED                0.2 s  title of s07.2

Stage            Points   Status   Passed
─────────────────────────────────────────
s05  Softmax      3 / 3   PASSED   3 of 3
s07  Attention    2 / 2   PASSED   2 of 2

Total             5 / 5

all public checks passed: 5 of 5 points
"""
    )


def test_of_a_part_of_a_stage_only_that_part_is_said_to_pass() -> None:
    text = shown(plan=[(SOFTMAX, SOFTMAX.checks[:2])])
    assert "the chosen public checks passed: 2 of 2 points" in text
    assert "all public checks" not in text


def test_the_first_failure_of_a_stage_is_told_in_full_and_the_others_in_a_line() -> None:
    text = shown(WRONG, record("s05.3", "CRASHED", "the process died"), width=80)
    assert (
        """
s05.2  INCORRECT_VALUE
  check   title of s05.2
  called  softmax(out[3,33] f32, x[3,33] f32), block (256,1,1), grid (3,1,1),
          shared 0 B
  shrunk  rows=3, columns=33
  result  12 of 99 values are wrong. First: out[2, 5] = 0.131, want 0.125
          (allowed error 0.0005).
  worst   out[2, 9] = 4, want 0.25 (allowed error 0.0005)
  hint    Only the last row (2) is wrong.
  where   .................................
          .................................
          .....############................
          3 x 33 values: . right, + partly wrong, # wrong
  repeat  make grade CHECK=s05.2 SEED=7

  also failed in s05
  s05.3  CRASHED  title of s05.3
                  the process died

Stage """
        in text
    )
    assert "s05  Softmax      1 / 3   FAILED   1 of 3" in text
    assert text.endswith("\n3 of 5 points: 3 passed, 2 failed\n")
    assert "all public checks" not in text


def place(line: int, text: str) -> dict[str, Any]:
    return {"file": "k.cu", "line": line, "text": text, "kind": "load", "block": [0, 0, 0], "thread": [1, 0, 0]}


def race(check_id: str, line: int, count: int) -> Record:
    report = {"access": place(line, "    t[i] = t[i + 1];"), "other": place(7, "t[i] = 0;")}
    return record(check_id, "DATA_RACE", f"In k: line {line} races, {count} times.", reports=[report])


def test_a_report_shows_its_lines_and_the_checks_that_failed_for_the_same_reason() -> None:
    stages = stage("s03", "RMSNorm", 5)
    plan = [(stages, stages.checks)]
    late = (record(f"s03.{n}", "TOO_SLOW", "A long sentence " + "that wraps " * 9 + "end.") for n in (4, 5))
    text = shown(race("s03.1", 28, 9), race("s03.3", 28, 12), race("s03.2", 30, 1), *late, plan=plan, width=80)
    assert (
        """\
  result  In k: line 28 races, 9 times.
  source     7 | t[i] = 0;
            28 | t[i] = t[i + 1];
  same    in s03.3
  read    assignments/debugging.md, "Data race"
  repeat  make grade CHECK=s03.1 SEED=7

  also failed in s03
  s03.2  DATA_RACE  title of s03.2
                    In k: line 30 races, 1 times.
  s03.4  TOO_SLOW   title of s03.4
                    A long sentence that wraps that wraps that wraps that wraps
                    that wraps that wraps that wraps that wraps that wraps end.
                    (the same in s03.5)
"""
        in text
    )


def test_time_outs_of_one_kernel_are_one_failure() -> None:
    late = [record(f"s05.{n}", "TIMEOUT", f"within {n} s", case=f"softmax(out[{n}, 33])") for n in (1, 2)]
    text = shown(*late, record("s05.3", "TIMEOUT", "within 9 s", case="other(out[3])"))
    assert "  same    in s05.2\n" in text
    assert "also failed in s05\n  s05.3  TIMEOUT  title of s05.3\n                  within 9 s\n" in text


def test_a_later_stage_names_the_earlier_failure_first() -> None:
    text = shown(WRONG, record("s07.2", "TIMEOUT", "no answer within 20 s"))
    block = text[text.index("\ns07.2  TIMEOUT") :]
    assert "  before  s05.2 failed, and this stage calls what it tests: repair that first.\n  result" in block


def test_what_is_not_implemented_says_where_to_write_and_never_that_it_is_wrong() -> None:
    missing = [record(f"s07.{n}", "NOT_IMPLEMENTED", "s07.1 is not written yet.", stubs=STUBS) for n in (1, 2)]
    text = shown(*missing)
    assert "\nNOT_IMPLEMENTED\n  s07  2 checks  write s07.1 in starter/engine/kernels/attention.cu:31\n" in text
    assert "s07  Attention    0 / 2   NOT_IMPLEMENTED   0 of 2" in text
    assert "3 of 5 points: 3 passed, 2 not implemented\n" in text
    assert text.endswith(
        "Next: write s07.1 in starter/engine/kernels/attention.cu:31\nRead: assignments/07-attention.md\n"
    )
    assert "wrong" not in text
    assert "failed" not in text


def test_skipped_and_not_run_checks_give_their_reason() -> None:
    text = shown(record("s07.1", "SKIPPED", "no check of s05 has passed."), record("s05.3", "NOT_RUN", "no GPU here."))
    assert "SKIPPED\n  s07  1 check  no check of s05 has passed." in text
    assert "NOT_RUN\n  s05  1 check  no GPU here." in text


def test_the_output_of_a_compiler_is_shown_from_its_first_line() -> None:
    log = "\n".join(f"softmax.cu:{n}: error" for n in range(100))
    text = shown(record("s05.1", "COMPILE_ERROR", "softmax.cu does not compile.", log=log))
    assert "  output  softmax.cu:0: error\n          softmax.cu:1: error\n" in text
    assert "… 76 more lines" in text


def test_of_an_output_that_was_not_kept_whole_all_lines_are_counted() -> None:
    log = "".join(f"row {n}\n" for n in range(30)) + MORE.format(1200) + "a\nb\nc\nd\n"
    text = shown(record("s05.1", "CRASHED", "no.", log=log))
    assert "  output  row 0\n          row 1\n" in text
    assert "          row 20\n          … 1,210 more lines …\n          b\n          c\n          d\n" in text


def test_what_passing_checks_printed_is_shown_of_one_and_named_of_several() -> None:
    printed = [record(check_id, log=HOSTILE) for check_id in ("s05.1", "s05.3")]
    told = "\nYour code printed something in s05.1 and s05.3: make grade CHECK=s05.1 SEED=7 shows it.\n"
    assert told in shown(*printed)
    text = shown(printed[0], plan=[(SOFTMAX, SOFTMAX.checks[:1])])
    assert "\ns05.1 printed\n[red]x[/red]" in text
    assert "\x1b" not in text


def test_a_line_that_is_printed_again_and_again_is_shown_once() -> None:
    text = shown(record("s05.1", "CRASHED", "no.", log="thread 0\n" * 32 + "end"))
    assert "  output  thread 0 … (32 times)\n          end\n" in text


HOSTILE = "[red]x[/red] [link=http://x]y[/link] :smile: \x1b[2J\x1b]0;title\x07\r\x00\u202e end"


def test_text_of_a_submission_is_neither_markup_nor_control() -> None:
    bad = record("s05.1", "RUNTIME_ERROR", HOSTILE, case=HOSTILE, drawn=HOSTILE, log=HOSTILE, hint=HOSTILE)
    for plain in (True, False):
        text = shown(bad, record("s05.2", "RUNTIME_ERROR", HOSTILE), plain=plain)
        assert "[red]x[/red] [link=http://x]y[/link] :smile:" in text
        for part in ("\x1b[2J", "\x1b]0", "\x07", "\x00", "\u202e"):
            assert part not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = record("s05.3", "RUNTIME_ERROR", "word " * 100 + "w" * 300, case="c" * 300)
    text = shown(WRONG, long, record("s07.1", "NOT_IMPLEMENTED", stubs=STUBS), width=width)
    assert max(len(line) for line in text.split("\n")) <= width


def test_no_color_and_pipes_get_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" not in shown(WRONG)
    assert "\x1b" in shown(WRONG, stream=Screen())
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(WRONG, stream=Screen())
    assert "\x1b" not in text
    assert "s05.2   INCORRECT_VALUE       0.2 s  12 of 99 values are wrong." in text


def test_force_color_in_the_environment_does_not_colour_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in shown(WRONG)


def test_the_live_display_shows_the_running_check_and_disappears() -> None:
    stream = Screen()
    terminal = Terminal(stream, plain=False, width=80)
    terminal.start(PLAN)
    terminal.check_started("s05.1", "title [b]of[/b] it")
    terminal.check_finished(record("s05.1", "TIMEOUT"))
    terminal.check_started("s05.2", "title [b]of[/b] it")
    terminal.stop()
    terminal.stop()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert re.search(r"s05  Softmax +running +1 of 3, 1 failed", text)
    assert "s07  Attention  waiting  0 of 2" in text
    assert "1 of 5 checks, 0 s  s05.2  title [b]of[/b] it" in text
    assert "\x1b[?25h" in stream.getvalue()  # the cursor is back


def test_a_stream_without_utf8_loses_characters_but_not_the_report() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    terminal = Terminal(stream)
    terminal.start(PLAN, "grades café")
    terminal.check_finished(record("s05.1", "CRASHED", "x" * 200 + "é"))
    stream.flush()
    assert b"grades caf?" in raw.getvalue()


def test_a_failure_of_another_kind_keeps_its_hint() -> None:
    other = record("s05.3", "NOT_FINITE", "4 of 9 values are NaN or infinite.", hint="Only the last row (2) is NaN.")
    assert """\
  also failed in s05
  s05.3  NOT_FINITE  title of s05.3
                     4 of 9 values are NaN or infinite.
                     hint: Only the last row (2) is NaN.
""" in shown(WRONG, other)


def test_checks_that_fail_by_one_mistake_are_one_failure() -> None:
    hint = "The values are those of a kernel that does not multiply the scores by scale."
    wrong = [record(f"s05.{n}", "INCORRECT_VALUE", f"{n} of 9 values are wrong.", hint=hint) for n in (1, 2, 3)]
    text = shown(*wrong)
    assert "  same    in s05.2 and s05.3\n" in text
    assert "also failed" not in text


def test_the_map_of_tokens_and_heads_says_so() -> None:
    cells = {"rows": 2, "columns": 3, "depth": 24, "counts": [[0, 24, 1], [0, 24, 0]]}
    text = shown(record("s05.2", "INCORRECT_VALUE", "49 are wrong.", wrong=49, total=144, map=cells))
    assert "  where   .#+\n          .#.\n          2 tokens x 3 heads: . right, + partly wrong, # wrong\n" in text
