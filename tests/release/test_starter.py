"""The starter is what the solutions give, without a line of them."""

import ast
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from grader import KIT
from grader.manifest import SUFFIXES, load_manifest
from grader.release.record import GENERATED
from grader.release.starter import generate, stale, write_starter
from grader.release.stubbing import StarterError, stub_text
from tests.release.secrets import secret_regions

CUDA = """\
#include <cuda_bf16.h>

// s03.1: the sum of a warp
constexpr int WARP = 32;

__device__ float warp_sum(float value) {
    return value;
}

// One for each row.
extern "C" __global__ void rmsnorm(float* out, int hidden_size) {
    const int row = blockIdx.x;
    // s03.1: one block per row
    if (row < hidden_size) {
        out[row] = 0.0f;
    }
}
"""
PYTHON = '''\
"""Contract."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (creates the GPU context)

from .buffers import Buffers

if TYPE_CHECKING:
    from .cache import Cache
    from .draws import sample

EPSILON = 1e-5
LIMIT = 4
"""Of both."""
# The names of a file.
NAMES = {"F32": np.float32}


class ModelError(ValueError):
    """A folder without a model."""


class Layer(NamedTuple):
    """Weights."""

    query: Buffers


class Model:
    """Shapes; NAMES has the types."""

    size: int = 0

    def forward(self, ids: Sequence[int], cache: "Cache") -> int:
        """Raise ModelError."""
        # s08.2: embed, run the blocks, apply the head
        total = math.fsum(ids) + EPSILON

        def attend() -> int:
            return LIMIT

        return self._block(attend)

    @cached_property
    def _weights(self) -> Layer:
        return Layer(Buffers())

    def _block(self, attend: Callable[[], int]) -> int:
        return attend() + _helper(1)

    def sizes(self) -> "Iterator[int]":
        # s08.3
        yield from (_helper(1), sample)


# Not for students.
def _helper(number: int) -> int:
    return 2 + number
'''
STUB = '''\
"""Contract."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (creates the GPU context)

if TYPE_CHECKING:
    from .cache import Cache

# The names of a file.
NAMES = {"F32": np.float32}


class ModelError(ValueError):
    """A folder without a model."""


class Model:
    """Shapes; NAMES has the types."""

    size: int = 0

    def forward(self, ids: Sequence[int], cache: "Cache") -> int:
        """Raise ModelError."""
        # TODO s08.2: embed, run the blocks, apply the head
        raise NotImplementedError("s08.2")

    def sizes(self) -> "Iterator[int]":
        # TODO s08.3
        raise NotImplementedError("s08.3")
'''
TOML = """\
# Geometry.
[rmsnorm]
# s03.2: one block per row
block = [
    256,
]
grid = ["T"]

[softmax]
block = [1]
"""


def test_a_kernel_becomes_one_line_and_helpers_disappear() -> None:
    assert stub_text(CUDA, "rmsnorm.cu") == (
        """\
#include <cuda_bf16.h>

// One for each row.
extern "C" __global__ void rmsnorm(float* out, int hidden_size) {
    const int row = blockIdx.x;
    NOT_IMPLEMENTED("s03.1");  // TODO s03.1: one block per row
}
"""
    )


def test_a_function_raises_and_what_only_solutions_use_disappears() -> None:
    assert stub_text(PYTHON, "model.py") == STUB


def test_the_keys_of_a_table_name_the_task() -> None:
    stub = '# Geometry.\n[rmsnorm]\nblock = "TODO s03.2"\ngrid = "TODO s03.2"\n\n[softmax]\nblock = [1]\n'
    assert stub_text(TOML, "launch.toml") == stub


def test_an_import_that_loses_names_is_wrapped_where_it_stays_too_long() -> None:
    names = [f"{'long' * 5}_{number}" for number in range(6)]
    text = f"from given import ({', '.join(names)}, more)\n\n\ndef f({': int, '.join(names)}: {' | '.join(names)}):\n"
    stub = stub_text(text + "    # s01.1\n    return more\n", "x.py")
    assert stub.split("\n")[:3] == ["from given import (", f"    {names[0]},", f"    {names[1]},"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.py", "# s01.1\nb = 1\n", "x.py:1: this marker is in no function"),
        ("x.py", "def f():\n    # s01.1\n    # s01.2\n    return 1\n", "x.py:3: this function has a marker already"),
        ("x.py", "def f():\n    # s01.1\n    return (\n", "x.py: cannot be parsed"),
        ("x.cu", "void f() {\n    // s03.1\n", "x.cu:2: no line `}` follows"),
        (
            "x.cu",
            "void f() {\n    // s03.1\n    // s03.2\n}\n",
            "x.cu:3: the solution that begins at an earlier marker",
        ),
        ("x.toml", "[a]\n# s03.1\nb =\n", "x.toml: cannot be parsed"),
    ],
)
def test_wrong_markers_are_named_with_their_line(name: str, text: str, said: str) -> None:
    with pytest.raises(StarterError) as caught:
        stub_text(text, name)
    assert said in str(caught.value)


def test_files_without_a_task_are_the_solutions_alone(tmp_path: Path) -> None:
    for name, text in (("__init__.py", ""), ("mine.py", "A = 1\n"), ("task.py", "def f():\n    # s01.1\n    pass\n")):
        (tmp_path / name).write_text(text)
    assert list(generate(tmp_path)) == ["__init__.py", "task.py"]


def test_a_file_changed_by_hand_is_never_overwritten(tmp_path: Path) -> None:
    starter = tmp_path / "starter"
    assert write_starter({"engine/a.cu": b"1", "engine/b.cu": b"1", "engine/c.cu": b"1"}, starter) == [
        "Wrote engine/a.cu.", "Wrote engine/b.cu.", "Wrote engine/c.cu.",
    ]  # fmt: skip
    (starter / "engine/a.cu").write_bytes(b"my work")
    done = write_starter({"engine/a.cu": b"2", "engine/b.cu": b"2"}, starter)
    assert [line.split(".cu")[0] for line in done] == ["Kept engine/a", "Wrote engine/b", "Removed engine/c"]
    assert (starter / "engine/a.cu").read_bytes() == b"my work"
    assert (starter / "engine/b.cu").read_bytes() == b"2"
    assert not (starter / "engine/c.cu").exists()
    # Still the student's after the next run, also when the record is lost.
    assert write_starter({"engine/a.cu": b"3", "engine/b.cu": b"2"}, starter)[0].startswith("Kept engine/a.cu")
    (starter / GENERATED).unlink()
    assert [line[:4] for line in write_starter({"engine/a.cu": b"3", "engine/b.cu": b"4"}, starter)] == ["Kept", "Kept"]
    assert stale({"engine/b.cu": b"2", "engine/d.cu": b""}, starter) == ["engine/a.cu", "engine/d.cu"]
    assert set(json.loads((starter / GENERATED).read_text())["files"]) == {"engine/a.cu", "engine/b.cu"}


# The kit's own


def test_regenerating_the_starter_changes_nothing(tmp_path: Path) -> None:
    assert stale(generate()) == []
    write_starter(generate(), tmp_path)
    assert (tmp_path / GENERATED).read_bytes() == (KIT / "starter" / GENERATED).read_bytes()


def test_no_line_of_a_solution_is_in_the_starter() -> None:
    texts = {path: path.read_text(encoding="utf-8").split("\n") for path in (KIT / "solutions").rglob("*.*")
             if path.suffix in SUFFIXES}  # fmt: skip
    regions = {path: [line.strip() for region in secret_regions(path) for line in region] for path in texts}
    secret = {line for lines in regions.values() for line in lines if len(line) > 25}
    open_ = {path: Counter(map(str.strip, lines)) - Counter(regions[path]) for path, lines in texts.items()}
    secret -= {line for lines in open_.values() for line in lines}
    assert len(secret) > 400
    starter = {line.strip() for path in (KIT / "starter").rglob("*.*") if path.suffix in SUFFIXES
               for line in path.read_text(encoding="utf-8").split("\n")}  # fmt: skip
    assert secret & starter == set()


def test_all_of_a_solution_file_without_a_marker_is_secret(tmp_path: Path) -> None:
    (tmp_path / "own.cuh").write_text("#pragma once\nconstexpr int TILE = 4;\n")
    (tmp_path / "task.cu").write_text('#include <x>\n\n// s03.1: sum\nint sum();\n\nextern "C" void f() {}\n')
    assert secret_regions(tmp_path / "own.cuh") == [["#pragma once", "constexpr int TILE = 4;", ""]]
    assert secret_regions(tmp_path / "task.cu") == [["int sum();", ""]]


def test_no_heading_in_a_stub_is_left_without_what_it_heads() -> None:
    for name, content in generate().items():
        if name.endswith(".py"):
            assert re.findall(r"^#.*\n+(?:\Z|\n(?=#))", content.decode(), re.MULTILINE) == [], name


def test_every_task_of_the_manifest_has_a_stub_in_a_file_of_its_stage_and_no_other_exists() -> None:
    manifest = load_manifest()
    files = generate()
    found = {stub for content in files.values() for stub in manifest.stub_ids if f"TODO {stub}" in content.decode()}
    assert found == set(manifest.stub_ids)
    for stub in manifest.stub_ids:
        names = manifest.stage(stub.partition(".")[0]).files
        assert any(f"TODO {stub}" in files.get(f"engine/{name}", b"").decode() for name in names), stub
    marks = sum(content.decode().count("TODO s") for content in files.values())
    assert marks == sum(
        content.decode().count(f"TODO {stub}") for content in files.values() for stub in manifest.stub_ids
    )


def test_what_a_stub_imports_from_another_is_there() -> None:
    stubs = {Path(name).stem: content.decode() for name, content in generate().items() if name.endswith(".py")}
    for name, text in stubs.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.module in stubs, name
                defined = {vars(part).get("name") for part in ast.parse(stubs[node.module]).body}
                assert {alias.name for alias in node.names} <= defined, name
