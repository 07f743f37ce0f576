"""What a campaign is: many independent runs, too long for `make test-all`, whose report is committed.

The report, tests/campaigns/NAME.jsonl, holds one JSON record a line: first what it is about, then one for each row. It
is written as soon as the row has run, so that a campaign that was killed goes on where it stopped; when the kit has
changed since, it begins again. To run a row again, delete its line. To add a campaign, write a module with a `CAMPAIGN`
and list it in run.py.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grader import KIT, VERSION

Key = tuple[str, int]
"""Name and seed of a row."""

Outcome = dict[str, Any]
"""What a row found out, in JSON; `complaints` lists what was not as it must be."""


@dataclass(frozen=True)
class Campaign:
    name: str
    keys: Sequence[Key]
    run: Callable[[Key, Path], Outcome]
    """Runs one row, which has an empty folder for itself; what it raises is a complaint."""
    sources: tuple[str, ...]
    """Files and folders, from the kit's root, with which the outcome may change."""
    summary: Callable[[list[Outcome]], list[str]] = lambda records: []
    """Lines to print about all records that are there."""


class Report:
    """The records of one campaign, on disk as soon as they are there."""

    def __init__(self, path: Path, campaign: Campaign, any_kit: bool = False) -> None:
        """What stands in the file is taken over if it was written with these sources, or with any."""
        self.path = path
        self.campaign = campaign
        self.head = {"campaign": campaign.name, "kit": VERSION, "sources": digest(campaign.sources)}
        self.records: dict[Key, Outcome] = {}
        self._read(any_kit)

    def _read(self, any_kit: bool) -> None:
        """Take over what an earlier run wrote; a last line that was cut off is dropped."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        records = [record for record in map(_parsed, lines) if record is not None]
        if records and (any_kit or records[0] == self.head):
            found = {(record["row"], record["seed"]): record for record in records[1:]}
            self.records = {key: found[key] for key in self.campaign.keys if key in found}
        self.write()

    def write(self) -> None:
        """Write all records, in the order of the campaign's rows."""
        ordered = [self.records[key] for key in self.campaign.keys if key in self.records]
        text = "".join(_line(record) for record in [self.head, *ordered])
        temporary = self.path.with_suffix(".part")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.path)

    def add(self, key: Key, outcome: Outcome) -> None:
        self.records[key] = {"row": key[0], "seed": key[1]} | outcome
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(self.records[key]))

    @property
    def missing(self) -> list[Key]:
        return [key for key in self.campaign.keys if key not in self.records]

    @property
    def failed(self) -> list[Outcome]:
        return [record for record in self.records.values() if record["complaints"]]


def run_campaign(report: Report, at_a_time: int, limit: int | None = None) -> None:
    """Run the rows that the report lacks, `limit` of them at most, this many at a time."""
    missing = report.missing[:limit]
    print(f"{report.campaign.name}: {len(report.records)} rows are there, {len(missing)} to run", flush=True)
    with ThreadPoolExecutor(at_a_time) as pool:
        running = {pool.submit(_timed, report.campaign, key): key for key in missing}
        try:
            for number, future in enumerate(as_completed(running), 1):
                key, outcome = running[future], future.result()
                report.add(key, outcome)
                said = "; ".join(outcome["complaints"]) or outcome.get("result", "ok")
                print(f"{number}/{len(missing)} {key[0]} {key[1]}: {outcome['seconds']} s, {said}", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            report.write()


def digest(sources: Sequence[str]) -> str:
    """sha256 of the files of a campaign's sources, their names included; caches of tools do not count."""
    found = hashlib.sha256()
    paths = [path for name in sources for path in [KIT / name, *(KIT / name).rglob("*")] if path.is_file()]
    for path in sorted(path.relative_to(KIT) for path in paths):
        if not any(part == "__pycache__" or part.startswith(".") for part in path.parts):
            found.update(f"{path}\0{hashlib.sha256((KIT / path).read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def _timed(campaign: Campaign, key: Key) -> Outcome:
    start = time.monotonic()
    with TemporaryDirectory(prefix="pagedlab-campaign-") as folder:
        try:
            outcome = campaign.run(key, Path(folder))
        except Exception as error:
            outcome = {"complaints": [f"{type(error).__name__}: {error}"]}
    return {"seconds": round(time.monotonic() - start, 1)} | outcome


def _line(record: Outcome) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def _parsed(line: str) -> Outcome | None:
    try:
        return dict(json.loads(line))
    except ValueError:
        return None
