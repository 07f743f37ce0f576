"""One small edit of a source file, as a mistake would make it; python_edits and cuda_edits find all of a text."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

KINDS = {
    "operator": "another operator",
    "bound": "a bound that is off by one",
    "constant": "another number",
    "barrier": "a barrier that is missing",
    "index": "two indices or arguments exchanged",
    "type": "a type that is too narrow",
    "statement": "a statement that is missing",
    "rounding": "rounded in another direction",
    "extremum": "the smallest in place of the largest, or the other way round",
    "cast": "a conversion that is missing",
}


class Edit(NamedTuple):
    """The characters `start` … `end` − 1 of a text become `after`."""

    kind: str
    start: int
    end: int
    after: str

    def of(self, text: str) -> str:
        """The text with this edit."""
        return text[: self.start] + self.after + text[self.end :]


class Mutant(NamedTuple):
    """An edit of one file of the solutions."""

    id: str
    """A hash of the file, the line's text, the place in it and what becomes of it; other lines do not matter."""
    file: str
    """Path below solutions/engine/."""
    line: int
    code: str
    """The text of the line where the edit begins, without blanks at its ends."""
    before: str
    edit: Edit


def mutants_of(file: str, text: str, edits: Iterable[Edit]) -> list[Mutant]:
    """The edits of a file as mutants, each once; those that change nothing are left out."""
    found = {}
    for edit in edits:
        before = text[edit.start : edit.end]
        if before == edit.after:
            continue
        begin = text.rfind("\n", 0, edit.start) + 1
        end = text.find("\n", begin)
        code = text[begin : end if end >= 0 else len(text)]
        twin = text[:begin].splitlines().count(code)  # which of several equal lines it is
        parts = (file, code, str(twin), str(edit.start - begin), edit.kind, before, edit.after)
        name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]
        found[name] = Mutant(name, file, text.count("\n", 0, begin) + 1, code.strip(), before, edit)
    return list(found.values())
