"""Puts headers beside the kernels into the text that includes them, as a preprocessor would.

So whatever looks at the text looks at them too: the lint, the rewriting, the cache's key, the reports' source lines.
CUDA's and C++'s headers stay with the compiler.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from grader import SUBMISSION_PATH
from grader.emulator.compiler.rewriter import SourceError
from grader.emulator.compiler.tokens import LINE_DIRECTIVE, tokens

HEADERS = Path(__file__).resolve().parent.parent / "include"
"""CUDA's headers for the emulator."""
GIVEN = SUBMISSION_PATH / "given" / "include"
"""The kit's own, which every kernel can include."""
GIVEN_NAME = "given/"
"""Their names in messages begin with this."""

MAX_TEXT = 4 << 20
MAX_HEADER = 1 << 20
MAX_DEPTH = 100

_INCLUDE = re.compile(r'\s*#\s*include\s*(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>)')
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
_PLAIN_NAME = re.compile(r"[\w./ +-]+")


def with_headers(source: str, folders: Sequence[Path], *, by_path: bool = False) -> str:
    """A source in which each header of these folders, or of the kit's, stands in the place of its #include.

    #line names what a header gives by its file, below its folder or, `by_path`, as a debugger finds it. Raises
    SourceError for a path that leaves the folders, and for more than 4 MiB of text.
    """
    return _Includer([*(folder.resolve() for folder in folders), GIVEN], by_path).included(source, "kernel.cu", None)


class _Includer:
    def __init__(self, folders: Sequence[Path], by_path: bool) -> None:
        self._folders = folders
        self._by_path = by_path
        self._left = MAX_TEXT

    def included(self, text: str, file: str, folder: Path | None, depth: int = 0) -> str:
        """A text with its headers; `folder` is that of a header."""
        pieces, position, line, counted = list[str](), 0, 1, 0
        for token in tokens(text):
            if token.kind != "directive":
                continue
            line += text.count("\n", counted, token.start)
            counted = token.start
            include = _INCLUDE.match(token.text)
            if named := LINE_DIRECTIVE.match(token.text):
                file, line = named[2] or file, int(named[1]) - 1
            elif include and (path := self._path(include, f"{file}:{line}", folder)):
                given = self._header(path, f"{file}:{line}", depth)
                pieces += [text[position : token.start], given, f'#line {line} "{file}"\n']
                position = token.start + include.end()
        return "".join([*pieces, text[position:]])

    def _path(self, include: re.Match[str], place: str, folder: Path | None) -> Path | None:
        """The header that is included; None for one of the compiler's, and where there is none."""
        name = PurePosixPath(include["quoted"] or include["angled"])
        if name.is_absolute() or ".." in name.parts:
            raise refusal(place, f"write {name} as its path in one of them, without ..")
        if os.path.exists(HEADERS / name):
            return None
        beside = [folder] if folder and include["quoted"] else []
        paths = [start / name for start in (*beside, *self._folders)]
        path = next(filter(os.path.isfile, paths), None)
        if path and not any(path.resolve().is_relative_to(start) for start in self._folders):
            raise refusal(place, f"{name} is a link that leads out of them")
        return path

    def _header(self, path: Path, place: str, depth: int) -> str:
        """The text of a header with what it includes itself, after a mark of where it begins."""
        try:
            with path.open("rb") as file:
                content = file.read(MAX_HEADER + 1)
        except OSError as error:
            raise SourceError(f"{place}: error: {path.name} cannot be read ({error.strerror})\n") from None
        text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        self._left -= len(text)
        if self._left < 0 or len(content) > MAX_HEADER or depth > MAX_DEPTH:
            raise SourceError(f"{place}: error: the headers are too large, or include each other without end\n")
        name = self._name(path)
        marked = f'#line 1 "{name}"\n{self.included(_ONCE.sub("", text), name, path.parent, depth + 1)}\n'
        if not _ONCE.search(text):
            return marked
        guard = f"_ONCE_{hashlib.sha256(content).hexdigest()[:16]}"
        return f"#ifndef {guard}\n#define {guard}\n{marked}#endif\n"

    def _name(self, path: Path) -> str:
        """What messages call a header."""
        start = next(start for start in self._folders if path.is_relative_to(start))
        name = path.relative_to(start).as_posix()
        shown = str(path) if self._by_path else f"{GIVEN_NAME * (start == GIVEN)}{name}"
        return shown if _PLAIN_NAME.fullmatch(shown) else "header"


def refusal(place: str, reason: str) -> SourceError:
    """The error of an #include at `file:line`."""
    what = "a kernel can include CUDA's and C++'s headers, and files in the folders of include_dirs"
    return SourceError(f"{place}: error: {what}: {reason}\n")
