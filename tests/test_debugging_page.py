"""The programs of assignments/debugging.md run as it says. `python -m tests.test_debugging_page` pastes anew.

A program stands behind a line `<!-- file: NAME -->`, what a command prints below it, in one block. Commands that were
typed to gdb stand there too, behind its prompt.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from grader import KIT
from tests.emulator.test_run_command import can_debug

PAGE = KIT / "assignments/debugging.md"
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```\n", re.DOTALL)
OUTPUT = re.compile(r"(```\n\$ \.venv/bin/python -m grader ([^\n]+)\n)(.*?)(```\n)", re.DOTALL)
PROMPT = "(gdb) "
OUTPUTS = [(match[2], match[3]) for match in OUTPUT.finditer(PAGE.read_text())]


def write_files(folder: Path) -> None:
    for name, text in FILE.findall(PAGE.read_text()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def printed(arguments: str, shown: str, folder: Path) -> str:
    """What the command prints now; of gdb's output, with the commands that are typed in what is shown."""
    typed = re.findall(r"^\(gdb\) (.+)$", shown, re.MULTILINE)
    result = subprocess.run(
        [sys.executable, "-m", "grader", *shlex.split(arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(KIT), "COLUMNS": "100"},
        input="\n".join([*typed, ""]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    text = re.sub(r"Traceback.*\n(?: .*\n)+", "…\n", result.stdout)
    if not typed:
        return re.sub(r" +$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\(process \d+\)", "(process 4711)", re.sub(r"0x[0-9a-f]{8,}", "0x…", text))
    first, *answers = text.split(PROMPT)
    assert len(answers) >= len(typed), text
    told = zip([*typed, ""], answers, strict=False)
    return first + "".join(f"{PROMPT}{command}\n{answer}" for command, answer in told if command)


@pytest.mark.parametrize(("arguments", "shown"), OUTPUTS, ids=[arguments for arguments, _ in OUTPUTS])
def test_output_is_what_the_page_shows(arguments: str, shown: str, tmp_path: Path) -> None:
    if "--debug" in arguments and not can_debug():
        pytest.skip("gdb is not here, or of no use here")
    write_files(tmp_path)
    assert printed(arguments, shown, tmp_path) == shown, "run: python -m tests.test_debugging_page"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name))
        page = OUTPUT.sub(lambda m: m[1] + printed(m[2], m[3], Path(name)) + m[4], PAGE.read_text())
    PAGE.write_text(page)
