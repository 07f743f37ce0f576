"""The profile of the solutions, and of a tile of theirs turned on its side."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from grader import KIT


def profile(submission: Path, folder: Path, *options: str) -> str:
    """What the command prints; the page lies in `folder` then."""
    command = [sys.executable, "-m", "grader", "profile", str(submission), "--html", str(folder / "page.html")]
    result = subprocess.run(
        [*command, *options], cwd=KIT, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "140"}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def rows(output: str) -> dict[str, str]:
    """The rows of the tables by the source that they show."""
    found = re.findall(r"^ *\d+  (\S.*?\S)  +(.*?) *$", output, re.MULTILINE)
    return dict(found)


def test_solutions_of_the_gemm_stage(tmp_path: Path) -> None:
    output = profile(KIT / "solutions", tmp_path, "--stage", "6")
    naive, tiled = output.split("\nmatmul_tiled(")
    assert "each request touches 16 sectors where 2 would do" in naive
    assert "Little is wasted here" in tiled
    found = rows(tiled)
    load = next(row for text, row in found.items() if text.startswith("x_tile[row][column] = "))
    multiply = next(row for text, row in found.items() if text.startswith("sum += x_tile"))
    assert load.split() == ["9,600", "614", "KB", "2", "→", "2", "100%", "0"]
    assert multiply == "0"
    assert tiled.count("barrier × 10") == 2
    page = (tmp_path / "page.html").read_text()
    assert page.count("<section>") == 2
    assert not re.search(r"\bnan\b|https?:", page, re.IGNORECASE)


def test_a_tile_on_its_side(tmp_path: Path) -> None:
    submission = tmp_path / "submission"
    shutil.copytree(KIT / "solutions", submission)
    kernel = submission / "engine/kernels/matmul.cu"
    text = kernel.read_text()
    for right, wrong in (
        ("[DEPTH + 1]", "[DEPTH]"),
        ("row = i / DEPTH, column = i % DEPTH", "row = i % TILE, column = i / TILE"),
    ):
        assert right in text
        text = text.replace(right, wrong)
    kernel.write_text(text)
    output = profile(submission, tmp_path, "--check", "s06.7")
    line = text[: text.index("x_tile[row][column] =")].count("\n") + 1
    told = " ".join(output.split())
    assert (
        f"line {line}: each request touches 16 sectors where 2 would do: neighbouring threads load addresses 640"
        in told
    )
    line = text[: text.index("sum += x_tile")].count("\n") + 1
    assert f"line {line}: shared memory serves each request in 16 passes where 1 would do" in told
