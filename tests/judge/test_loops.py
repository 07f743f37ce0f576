"""Loops that cannot end, as their first line shows."""

import pytest

from grader import KIT
from grader.judge.loops import endless, loops

ENDLESS = [
    (
        "for (int half = n / 2; half >= 0; half /= 2) {",
        "half is halved and never gets below 0: let the loop end at half > 0",
    ),
    ("for (int d = 16; d >= 0; d >>= 1)", "d is halved and never gets below 0: let the loop end at d > 0"),
    ("for (unsigned i = n - 1; i >= 0; i--)", "i is unsigned, which is never below 0: declare it as int"),
    ("for (size_t i = n; i >= 0; --i) {", "i is unsigned, which is never below 0: declare it as int"),
    ("for (int s = 0; s < n; s *= 2) {", "s begins at 0 and is multiplied, which leaves it 0: begin at 1"),
    ("for (int i = 0; i < n; i--) {", "i moves away from its bound"),
    ("for (int i = n; i > 0; i++) {", "i moves away from its bound"),
    ("for (int i = threadIdx.x; i != n; i += blockDim.x) {", "i may step over the value that ends the loop: use <"),
]


@pytest.mark.parametrize(("head", "reason"), ENDLESS)
def test_why_a_loop_does_not_end_is_told_with_its_line(head: str, reason: str) -> None:
    evidence = endless(f"int a;\nfor (int i = 0; i < n; i++) a++;\n  {head}")
    assert evidence == {"source": [(3, head)], "hint": f"Line 3: {reason}."}


def test_without_a_reason_all_loops_are_shown() -> None:
    assert endless("while (go) {\n}\n// for (;;)\nfor (;;) {") == {
        "source": [(1, "while (go) {"), (4, "for (;;) {")],
        "hint": "One of these loops does not end: compare how its counter begins, its bound and its step.",
    }
    assert endless("int a;") == {"source": []}


def test_no_loop_of_the_solutions_is_suspected() -> None:
    for file in (KIT / "solutions/engine/kernels").glob("*.cu*"):
        assert [loop for loop in loops(file.read_text()) if loop.reason] == [], file.name
