"""Wrong solutions: the rows of tests/mutants.toml."""

import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from grader import KIT

TABLE = KIT / "tests" / "mutants.toml"


@dataclass(frozen=True)
class Mutant:
    """One row; the head of the table says what the fields mean."""

    id: str
    file: str
    find: str
    replace: str
    check: str
    verdict: str
    hint: str
    also: list[str] = field(default_factory=list)

    @property
    def checks(self) -> list[str]:
        """All checks that must fail."""
        return [self.check, *self.also]

    def write(self, submission: Path) -> Path:
        """Copy the solutions to `submission`, with this edit; its text must occur exactly once."""
        shutil.copytree(KIT / "solutions", submission)
        file = submission / "engine" / self.file
        source = file.read_text()
        assert source.count(self.find) == 1, f"{self.id}: its text occurs {source.count(self.find)} times"
        file.write_text(source.replace(self.find, self.replace))
        return submission


def load_mutants() -> list[Mutant]:
    return [Mutant(**row) for row in tomllib.loads(TABLE.read_text())["mutant"]]
