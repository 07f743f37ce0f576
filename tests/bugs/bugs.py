"""The list of seeded bugs: its rows (bugs.toml), the text to compile, the arrays of a launch, the marked lines."""

import functools
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

FOLDER = Path(__file__).parent
TWIN = "_right"
"""Behind the name of a kernel: its right twin."""
DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "int": np.int32,
    "int8": np.int8,
    "bf16": ml_dtypes.bfloat16,
}
_KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(')


class Array(NamedTuple):
    """An array argument: `values` go to the start of `bytes` on the device; the rest is left as it was allocated."""

    bytes: int
    values: np.ndarray[Any, Any]
    place: str
    """"device", "host" (the address of the NumPy array is passed), "freed", or "beside" (not passed)."""


class Case(NamedTuple):
    """One launch: of a bug, or of its right twin."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: list[Any]
    """Array, int, float, or "null"."""


class Bug(NamedTuple):
    """One row; see bugs.toml."""

    id: str
    file: str
    verdict: str | None
    is_remark: bool
    in_order: bool
    differs: bool
    access: set[str]
    address: str
    says: str
    at: list[list[int]] | None
    wrong: Case | None
    right: Case

    def lines(self, mark: str) -> set[int]:
        """Lines of the file that are marked with (mark) for this bug."""
        return _marks(self.file).get((self.id, mark), set())


@functools.cache
def load_bugs() -> list[Bug]:
    rows = tomllib.loads((FOLDER / "bugs.toml").read_text())["bug"]
    files = {name: path.name for path in sources() for name in _KERNEL.findall(path.read_text())}
    assert [row["id"] for row in rows if row["id"] not in files] == []
    assert files.keys() - {row["id"] for row in rows} == set()
    return [_bug(row, files[row["id"]]) for row in rows]


def sources() -> list[Path]:
    return sorted(FOLDER.glob("*.cu"))


def source_text(file: str) -> str:
    """What is compiled for one file: its kernels, and again in a namespace as right twins; lines keep their numbers."""
    text = (FOLDER / file).read_text()
    right = _KERNEL.sub(rf'extern "C" __global__ void \1{TWIN}(', text)
    line = f'#line 1 "{file}"\n'
    return (
        f"{line}#define BUG(...) __VA_ARGS__\n#define FIX(...)\n{line}{text}\n"
        f"#undef BUG\n#undef FIX\n#define BUG(...)\n#define FIX(...) __VA_ARGS__\n"
        f"namespace right {{\n{line}{right}\n}}\n"
    )


def _bug(row: dict[str, Any], file: str) -> Bug:
    name, is_wrong = row["id"], "verdict" in row or row.get("differs", False)
    return Bug(
        id=name,
        file=file,
        verdict=row.get("verdict"),
        is_remark=row.get("remark", False),
        in_order=row.get("in_order", False),
        differs=row.get("differs", False),
        access=set(row.get("access", ())),
        address=row.get("address", ""),
        says=row.get("says", ""),
        at=row.get("at"),
        wrong=_case(name, row) if is_wrong else None,
        right=_case(name + TWIN, row | row.get("right", {})),
    )


def _case(kernel: str, row: dict[str, Any]) -> Case:
    grid, block = (_extent(row.get(key, default)) for key, default in (("grid", [1]), ("block", [32])))
    arguments = [_argument(text) for text in row["arguments"]]
    return Case(kernel, grid, block, row.get("shared", 0), arguments)


def _extent(sizes: list[int]) -> tuple[int, int, int]:
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def _argument(text: Any) -> Any:
    if not isinstance(text, str) or text == "null":
        return text
    found = re.fullmatch(r"(\w+)\[(\d+)]\s*(.*)", text)
    assert found, text
    dtype, count, rest = np.dtype(DTYPES[found[1]]), int(found[2]), found[3].split()
    word = rest[0] if rest else "given"
    num_written = {"unwritten": 0, "written": int(rest[1]) if word == "written" else 0}.get(word, count)
    values = (np.arange(num_written) + (dtype.kind != "i")).astype(dtype)
    if word == "zero":
        values = np.zeros(count, dtype)
    elif word == "=":
        values = np.array(rest[1:], dtype)
    place = word if word in ("host", "freed", "beside") else "device"
    return Array(count * dtype.itemsize, values, place)


@functools.cache
def _marks(file: str) -> dict[tuple[str, str], set[int]]:
    """Lines by bug and mark; a mark belongs to the kernel it stands in, or to the bug that it names."""
    marks: dict[tuple[str, str], set[int]] = {}
    kernel = ""
    for number, line in enumerate((FOLDER / file).read_text().split("\n"), 1):
        if found := _KERNEL.search(line):
            kernel = found[1]
        if found := re.search(r"// \((1|2|also)\)(?: (\w+))?$", line):
            marks.setdefault((found[2] or kernel, found[1]), set()).add(number)
    return marks
