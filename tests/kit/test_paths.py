"""Texts and comments name files that are there."""

import re

from grader import KIT
from tests.kit.sizes import source_files

TEXTS = (".py", ".md", ".toml", ".cu", ".cuh", ".h", ".cpp", ".yml", ".mk", ".sh", "Makefile")
PATH = re.compile(
    r"(?<![\w/.$}<-])((?:grader|tests|solutions|starter|assignments|reference_outputs)/[\w./-]*\w)(?![\w*{<])"
)
MADE_UP = {"starter/engine/kernels/added.cu", "assignments/new.md", "grader/absent.py"}
"""Files that a test writes or misses."""
PLACEHOLDER = re.compile("NN|NAME")


def test_paths_that_texts_name_exist() -> None:
    missing = [
        f"{name}: {path}"
        for name in source_files(*TEXTS)
        if name != "CHANGELOG.md"
        for path in PATH.findall((KIT / name).read_text(encoding="utf-8"))
        if not (path in MADE_UP or PLACEHOLDER.search(path) or (KIT / path).exists())
    ]
    assert missing == []


def test_a_missing_path_is_found() -> None:
    assert PATH.findall("see `grader/absent.py`, grader/text.py.") == ["grader/absent.py", "grader/text.py"]
