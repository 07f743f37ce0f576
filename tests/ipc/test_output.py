"""Of what a process prints the first and the last whole lines are kept, and the others counted."""

import os
from pathlib import Path

import pytest

from grader.ipc.output import KEPT_BYTES, KeptOutput


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        (b"", ""),
        (b"a\nb", "a\nb"),
        (b"1234567\n" * 3000, "1234567\n" * 1024 + "… 1849 more lines\n" + "1234567\n" * 127),
        (b"1234567\n" * 1100, "1234567\n" * 1100),
        (b"x" * KEPT_BYTES, "x" * KEPT_BYTES),
        (b"x" * 20_000, "x" * KEPT_BYTES),
        (b"a\n" + b"x" * 20_000 + b"\nb\n", "a\n… 1 more lines\nb\n"),
    ],
)
def test_the_first_and_the_last_whole_lines_are_kept(printed: bytes, kept: str, tmp_path: Path) -> None:
    path = tmp_path / "printed"
    path.write_bytes(printed)
    output = KeptOutput(path.open("rb"))
    assert output.text() == kept


def test_what_was_forgotten_is_not_told_again() -> None:
    reading, writing = os.pipe()
    totals: list[int] = []
    output = KeptOutput(os.fdopen(reading, "rb"), totals.append)
    os.write(writing, b"first\n")
    assert output.text() == "first\n"
    output.forget()
    os.write(writing, b"second\n")
    assert output.text() == "second\n"
    os.close(writing)
    assert output.text() == "second\n"
    assert totals == [6, 13]
