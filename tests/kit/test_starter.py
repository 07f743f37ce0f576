"""The starter is what the solutions give, without a line of them."""

import json
from pathlib import Path

import pytest

from grader import KIT
from grader.manifest import load_manifest
from grader.release.starter import RECORD, StarterError, generate, stale, stub_text, write_starter

CUDA = """\
#include <cuda_bf16.h>

// solution s03.1: add the squares of a warp
__device__ float warp_sum(float value) { return value; }
// end solution

extern "C" __global__ void rmsnorm(float* out, int hidden_size) {
    const int row = blockIdx.x;
    // solution s03.1: one block per row
    out[row] = 0.0f;
    // end solution
}
"""
PYTHON = '''\
"""Contract."""

import math


# solution s08.2
EPSILON = 1e-5
# end solution


class Model:
    """Shapes."""

    def forward(self, ids):
        # solution s08.2: embed, run the blocks, apply the head
        total = math.fsum(ids)

        return total
        # end solution

    # solution s08.2
    def _block(self):
        return 1
    # end solution


# solution s08.2
def _helper():
    return 2
# end solution
'''
TOML = """\
[rmsnorm]
# solution s03.2: one block per row
block = [
    256,
]
grid = ["T"]
# end solution
"""


def test_a_cuda_region_becomes_one_line_and_helpers_disappear() -> None:
    assert stub_text(CUDA, "rmsnorm.cu") == (
        """\
#include <cuda_bf16.h>

extern "C" __global__ void rmsnorm(float* out, int hidden_size) {
    const int row = blockIdx.x;
    NOT_IMPLEMENTED("s03.1");  // TODO s03.1: one block per row
}
"""
    )


def test_a_python_region_raises_and_helpers_disappear() -> None:
    text = stub_text(PYTHON, "model.py")
    assert text == (
        '''\
"""Contract."""

import math


class Model:
    """Shapes."""

    def forward(self, ids):
        raise NotImplementedError("s08.2")  # TODO s08.2: embed, run the blocks, apply the head
'''
    )
    compile(text, "model.py", "exec")


def test_the_keys_of_a_toml_region_name_the_task() -> None:
    assert stub_text(TOML, "launch.toml") == '[rmsnorm]\nblock = "TODO s03.2"\ngrid = "TODO s03.2"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\n# solution s01.1\nb\n", "x.py:2: this region has no `end solution`"),
        ("# end solution\n", "x.py:1: this marker has no partner"),
        ("# solution s01.1\n# solution s01.2\n# end solution\n", "x.py:2: this marker has no partner"),
        ("def f():\n    # solution s01.1\n    return (\n    # end solution\n", "x.py:2: this region cannot be parsed"),
    ],
)
def test_wrong_markers_are_named_with_their_line(text: str, said: str) -> None:
    with pytest.raises(StarterError) as caught:
        stub_text(text, "x.py")
    assert said in str(caught.value)


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
    (starter / RECORD).unlink()
    assert [line[:4] for line in write_starter({"engine/a.cu": b"3", "engine/b.cu": b"4"}, starter)] == ["Kept", "Kept"]
    assert stale({"engine/b.cu": b"2", "engine/d.cu": b""}, starter) == ["engine/a.cu", "engine/d.cu"]
    assert set(json.loads((starter / RECORD).read_text())["files"]) == {"engine/a.cu", "engine/b.cu"}


# The kit's own


def test_regenerating_the_starter_changes_nothing(tmp_path: Path) -> None:
    assert stale(generate()) == []
    write_starter(generate(), tmp_path)
    assert (tmp_path / RECORD).read_bytes() == (KIT / "starter" / RECORD).read_bytes()


def split_regions(path: Path) -> tuple[set[str], set[str]]:
    """Stripped lines inside and outside of the solution regions of a file."""
    inside: set[str] = set()
    outside: set[str] = set()
    current = outside
    for line in path.read_text(encoding="utf-8").split("\n"):
        if "end solution" in line:
            current = outside
        elif line.strip().startswith(("// solution s", "# solution s")):
            current = inside
        else:
            current.add(line.strip())
    return inside, outside


def test_no_line_of_a_solution_is_in_the_starter() -> None:
    regions = [split_regions(path) for path in (KIT / "solutions").rglob("*") if path.suffix in (".cu", ".py", ".toml")]
    secret = {line for inside, _ in regions for line in inside if len(line) > 25}
    secret -= {line for _, outside in regions for line in outside}
    assert len(secret) > 100
    starter = {line.strip() for path in (KIT / "starter").rglob("*") if path.suffix in (".cu", ".py", ".toml")
               for line in path.read_text(encoding="utf-8").split("\n")}  # fmt: skip
    assert secret & starter == set()


def test_every_task_of_the_manifest_has_a_stub_in_a_file_of_its_stage_and_no_other_exists() -> None:
    manifest = load_manifest()
    files = generate()
    found = {stub for content in files.values() for stub in manifest.stub_ids if f"TODO {stub}" in content.decode()}
    assert found == set(manifest.stub_ids)
    for stub in manifest.stub_ids:
        names = manifest.stage(stub.partition(".")[0]).files
        assert any(f"TODO {stub}" in files[f"engine/{name}"].decode() for name in names), stub
    marks = sum(content.decode().count("TODO s") for content in files.values())
    assert marks == sum(
        content.decode().count(f"TODO {stub}") for content in files.values() for stub in manifest.stub_ids
    )


def test_every_python_stub_is_valid_python() -> None:
    for name, content in generate().items():
        if name.endswith(".py"):
            compile(content, name, "exec")
