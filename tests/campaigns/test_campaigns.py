"""A campaign goes on where it stopped, and its report says what each row found."""

import json
from pathlib import Path
from typing import Any

import pytest

from grader import KIT
from tests.campaigns.campaign import Campaign, Key, Outcome, Report, digest, run_campaign
from tests.campaigns.run import CAMPAIGNS

KEYS = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


class Runs:
    """A campaign that notes which rows it ran; row b fails under seed 1."""

    def __init__(self, *sources: str) -> None:
        self.ran: list[Key] = []
        self.stop_at: Key | None = None
        self.campaign = Campaign("toy", KEYS, self.run, sources)

    def run(self, key: Key, folder: Path) -> Outcome:
        if key == self.stop_at:
            raise KeyboardInterrupt
        assert list(folder.iterdir()) == []
        self.ran.append(key)
        if key == ("b", 0):
            raise ValueError("b is broken")
        return {"verdicts": {"s00.1": "PASSED"}, "complaints": ["wrong"] if key == ("b", 1) else []}


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_row_is_recorded(tmp_path: Path) -> None:
    path, runs = tmp_path / "toy.jsonl", Runs("tests/tools.py")
    report = Report(path, runs.campaign)
    run_campaign(report, at_a_time=1)
    head, *rows = records(path)
    assert head["campaign"] == "toy"
    assert [(row["row"], row["seed"]) for row in rows] == KEYS
    assert [row["complaints"] for row in rows] == [[], [], ["ValueError: b is broken"], ["wrong"]]
    assert all(row["seconds"] >= 0 for row in rows)
    assert report.failed == rows[2:]


def test_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    path, first = tmp_path / "toy.jsonl", Runs("tests/tools.py")
    first.stop_at = KEYS[-1]
    with pytest.raises(KeyboardInterrupt):
        run_campaign(Report(path, first.campaign), at_a_time=1)
    with path.open("a") as file:
        file.write('{"row": "b", "se')  # killed while it wrote
    second = Runs("tests/tools.py")
    report = Report(path, second.campaign)
    left = report.missing
    assert KEYS[-1] in left
    assert KEYS[0] not in left
    run_campaign(report, at_a_time=2, limit=1)
    run_campaign(report, at_a_time=2)
    assert sorted(second.ran) == left
    assert [(row["row"], row["seed"]) for row in records(path)[1:]] == KEYS


def test_a_changed_kit_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    run_campaign(Report(path, Runs("tests/tools.py").campaign), at_a_time=1)
    assert Report(path, Runs("tests/tools.py").campaign).missing == []
    assert Report(path, Runs("tests/tools.py", "tests/run.py").campaign, any_kit=True).missing == []
    assert Report(path, Runs("tests/tools.py").campaign, any_kit=True).missing == []
    assert Report(path, Runs("tests/tools.py", "tests/run.py").campaign).missing == KEYS


def test_a_tool_s_cache_does_not_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.campaigns.campaign.KIT", tmp_path)
    (tmp_path / "grader/.ruff_cache").mkdir(parents=True)
    (tmp_path / "grader/run.py").write_text("x = 1")
    before = digest(["grader"])
    (tmp_path / "grader/.ruff_cache/entry").write_text("seen")
    assert digest(["grader"]) == before
    (tmp_path / "grader/run.py").write_text("x = 2")
    assert digest(["grader"]) != before


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_sources_exist_and_a_committed_report_has_no_complaint(name: str) -> None:
    campaign = CAMPAIGNS[name]
    assert [source for source in campaign.sources if not (KIT / source).exists()] == []
    path = KIT / "tests/campaigns" / f"{name}.jsonl"
    assert [row for row in (records(path)[1:] if path.exists() else []) if row["complaints"]] == []
