"""Draws random mutants of the solutions: evenly over files and kinds, one at most for a line and kind."""

import hashlib
from collections import Counter
from collections.abc import Iterator

from grader import KIT
from grader.manifest import Manifest
from tests.campaigns.cuda_edits import cuda_edits
from tests.campaigns.edits import Mutant, mutants_of
from tests.campaigns.python_edits import python_edits

ENGINE = KIT / "solutions/engine"


def all_mutants(manifest: Manifest) -> list[Mutant]:
    """Every mutant that could be drawn of the graded files, kernels and host modules."""
    return [mutant for file in graded_files(manifest) for mutant in _mutants(file)]


def graded_files(manifest: Manifest) -> list[str]:
    """Paths below solutions/engine/, without launch.toml."""
    paths = {path for pattern in manifest.files() for path in ENGINE.glob(pattern)}
    return sorted(str(path.relative_to(ENGINE)) for path in paths if path.suffix != ".toml")


def draw(mutants: list[Mutant], seed: int, count: int) -> list[Mutant]:
    """`count` of these mutants. A mutant's rank depends on the seed and its id alone, so that an edit of the solutions
    changes few of those that are drawn."""
    left: dict[str, list[Mutant]] = {}
    for mutant in sorted(mutants, key=lambda mutant: _rank(mutant, seed)):
        left.setdefault(mutant.file, []).append(mutant)
    return list(_in_turn(left))[:count]


def _in_turn(left: dict[str, list[Mutant]]) -> Iterator[Mutant]:
    """One mutant of each file after the other, each of the kind that is rarest in its file, then among all."""
    of_kind: Counter[str] = Counter()
    of_file: Counter[tuple[str, str]] = Counter()
    while left:
        for file in sorted(left):
            chosen = min(left[file], key=lambda mutant: (of_file[file, mutant.edit.kind], of_kind[mutant.edit.kind]))
            of_file[file, chosen.edit.kind] += 1
            of_kind[chosen.edit.kind] += 1
            taken = (chosen.line, chosen.edit.kind)
            left[file] = [mutant for mutant in left[file] if (mutant.line, mutant.edit.kind) != taken]
            yield chosen
        left = {file: mutants for file, mutants in left.items() if mutants}


def _mutants(file: str) -> list[Mutant]:
    text = (ENGINE / file).read_text(encoding="utf-8")
    return mutants_of(file, text, python_edits(text) if file.endswith(".py") else cuda_edits(text))


def _rank(mutant: Mutant, seed: int) -> str:
    return hashlib.sha256(f"{seed} {mutant.id}".encode()).hexdigest()
