"""Texts and comments name files and modules that are there."""

import ast
import re
from pathlib import Path

from grader import KIT
from tests.kit.sizes import source_files

TEXTS = (".py", ".md", ".toml", ".cu", ".cuh", ".h", ".cpp", ".yml", ".mk", ".sh", "Makefile")
PATH = re.compile(
    r"(?<![\w/.$}<-])((?:grader|tests|solutions|starter|assignments|reference_outputs)/[\w./-]*\w)(?![\w*{<])"
)
DOTTED = re.compile(r"(?<![\w/.])grader(?:\.[A-Za-z_]\w*)+")
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


def test_modules_that_texts_name_exist() -> None:
    missing = [
        f"{name}: {dotted}"
        for name in source_files(*TEXTS)
        if name not in ("CHANGELOG.md", "tests/kit/test_paths.py")
        for dotted in sorted(set(DOTTED.findall((KIT / name).read_text(encoding="utf-8"))))
        if not is_defined(dotted)
    ]
    assert missing == []


def is_defined(dotted: str) -> bool:
    """Whether grader.observe.counters.Counters, for one, is a module or what a module defines or imports."""
    path, *names = KIT / "grader", *dotted.split(".")[1:]
    while names and (path / names[0]).is_dir():
        path /= names.pop(0)
    if names and (path / f"{names[0]}.py").is_file():
        return len(names) == 1 or names[1] in defined_names(path / f"{names[0]}.py")
    return not names or names[0] in defined_names(path / "__init__.py")


def defined_names(module: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if module.is_file() else ():
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(asname=None, name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return names


def test_a_missing_module_is_found() -> None:
    assert DOTTED.findall("see `grader.counters.Counters`, grader.text.") == ["grader.counters.Counters", "grader.text"]
    assert [is_defined(f"grader.{name}") for name in ("text", "emulator.device", "text.clean", "KIT")] == [True] * 4
    assert [is_defined(f"grader.{name}") for name in ("counters.Counters", "text.absent", "absent")] == [False] * 3


def test_a_missing_path_is_found() -> None:
    assert PATH.findall("see `grader/absent.py`, grader/text.py.") == ["grader/absent.py", "grader/text.py"]
