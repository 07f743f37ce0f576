"""Engines that pretend to be fast lose the checks that cheating would win (tests/attacks/cheats.toml)."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from grader import KIT
from grader.manifest import load_manifest
from tests.graded.grading import failures, grade, verdicts
from tests.graded.overlays import overlay

ATTACKS = KIT / "tests/attacks"
CHEATS = tomllib.loads((ATTACKS / "cheats.toml").read_text())["cheat"]


def write(cheat: dict[str, Any], submission: Path) -> Path:
    if cheat["overlay"]:
        overlay(ATTACKS / cheat["overlay"], submission)
    else:
        shutil.copytree(KIT / "solutions", submission)
    if "file" in cheat:
        file = submission / "engine" / cheat["file"]
        source = file.read_text()
        assert source.count(cheat["find"]) == 1, f"{cheat['id']}: its text occurs {source.count(cheat['find'])} times"
        file.write_text(source.replace(cheat["find"], cheat["replace"]))
    return submission


def wanted(cheat: dict[str, Any]) -> dict[str, str]:
    """The verdict of each check by its id."""
    manifest = load_manifest()
    want: dict[str, str] = {}
    for name, verdict in cheat["verdicts"].items():
        checks = [name] if "." in name else [check.id for check in manifest.stage(name).checks]
        want |= dict.fromkeys(checks, verdict)
    return want


@pytest.mark.parametrize("cheat", CHEATS, ids=[cheat["id"] for cheat in CHEATS])
def test_a_cheat_gets_its_verdicts(cheat: dict[str, Any], tmp_path: Path) -> None:
    want = wanted(cheat)
    selection = [word for check in want for word in ("--check", check)]
    results = grade(write(cheat, tmp_path / "submission"), "--device", "cpu", *selection)
    assert verdicts(results) == want, failures(results)
