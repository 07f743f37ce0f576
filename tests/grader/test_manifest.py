"""The manifest is valid, and each way to break one is named."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from grader.manifest import MANIFEST, Manifest, ManifestError, load_manifest, parse_manifest

SOUND = """
deadline = 20

[[stage]]
id = "s00"
title = "Warm-up"
handout = "00-warm-up.md"
points = 1.5
files = ["kernels/vector_add.cu", "vector_add.py"]

[[stage.task]]
id = "s00.1"

[[stage.task]]
id = "s00.2"
calls = ["s00.1"]

[[stage.check]]
id = "s00.1"
points = 1
runs = ["s00.1"]

[[stage.check]]
id = "s00.2"
points = 0.5
runs = ["s00.2"]
deadline = 45

[[stage]]
id = "s03"
title = "RMSNorm"
handout = "03-rmsnorm.md"
points = 1
files = ["kernels/rmsnorm.cu", "launch.toml"]

[[stage.task]]
id = "s03.1"

[[stage.check]]
id = "s03.1"
points = 1
runs = ["s03.1"]

[[stage.check]]
id = "s03.2"
points = 0
runs = ["s03.1", "s00.1"]

[[stage]]
id = "s08"
title = "Forward pass"
handout = "08-forward-pass.md"
points = 1
deadline = 60
files = ["model.py", "launch.toml"]
task = [{ id = "s08.1", calls = ["s00.2", "s03.1"] }]

[[stage.check]]
id = "s08.1"
points = 1
runs = ["s08.1"]
"""


@pytest.fixture
def manifest() -> Manifest:
    return parse_manifest(tomllib.loads(SOUND))


def test_a_sound_manifest_loads(manifest: Manifest) -> None:
    assert [stage.id for stage in manifest.stages] == ["s00", "s03", "s08"]
    assert manifest.stub_ids == ("s00.1", "s00.2", "s03.1", "s08.1")
    first, second = manifest.stage("s00").checks
    assert (first.points, first.deadline, first.stage) == (1.0, 20.0, "s00")
    assert (second.points, second.deadline) == (0.5, 45.0)
    assert manifest.check("s08.1").deadline == 60.0


def test_a_check_needs_what_it_runs_and_all_that_this_calls(manifest: Manifest) -> None:
    needs = {check.id: check.needs for check in manifest.checks}
    assert needs == {
        "s00.1": ("s00.1",),
        "s00.2": ("s00.1", "s00.2"),
        "s03.1": ("s03.1",),
        "s03.2": ("s00.1", "s03.1"),
        "s08.1": ("s00.1", "s00.2", "s03.1", "s08.1"),
    }
    assert [stage.requires for stage in manifest.stages] == [(), ("s00",), ("s00", "s03")]


@pytest.mark.parametrize("name", ["s03", "3", "03", 3])
def test_a_stage_is_found_by_number_or_id(manifest: Manifest, name: str | int) -> None:
    assert manifest.stage(name).title == "RMSNorm"


@pytest.mark.parametrize("name", ["4", "s3x", "", "rmsnorm", "-3"])
def test_an_unknown_stage_is_named_with_those_that_exist(manifest: Manifest, name: str) -> None:
    with pytest.raises(ManifestError, match=r"There is no stage .*; the stages are s00, s03 and s08\."):
        manifest.stage(name)


def test_a_check_is_found_by_id(manifest: Manifest) -> None:
    assert manifest.check("s00.2").points == 0.5
    with pytest.raises(
        ManifestError, match=r"There is no check 's03\.9'; the checks of stage s03 are s03\.1 and s03\.2"
    ):
        manifest.check("s03.9")
    with pytest.raises(ManifestError, match="There is no stage"):
        manifest.check("s77.1")


def test_a_selection_keeps_the_order(manifest: Manifest) -> None:
    def ids(**wanted: Any) -> list[str]:
        return [check.id for _, checks in manifest.select(**wanted) for check in checks]

    assert ids() == ["s00.1", "s00.2", "s03.1", "s03.2", "s08.1"]
    assert ids(stages=[3]) == ["s03.1", "s03.2"]
    assert ids(checks=["s08.1", "s00.2"]) == ["s00.2", "s08.1"]
    assert ids(checks=["s03.2"], stages=[3, "s08"]) == ["s03.2", "s08.1"]


def test_a_selection_for_another_model_keeps_what_can_run_on_it() -> None:
    text = SOUND.replace('runs = ["s08.1"]', 'runs = ["s08.1"]\nany_model = true')
    manifest = parse_manifest(tomllib.loads(text))
    assert [check.id for _, checks in manifest.select_for_model() for check in checks] == ["s08.1"]
    with pytest.raises(ManifestError, match=r"None of these checks runs on another model .* those that do are s08\.1"):
        manifest.select_for_model(stages=[3])


def test_each_file_to_take_is_named_once(manifest: Manifest) -> None:
    assert manifest.files() == (
        "kernels/vector_add.cu", "vector_add.py", "kernels/rmsnorm.cu", "launch.toml", "model.py",
    )  # fmt: skip


FAULTS = [
    ("deadline = 20", "", "the head of the file: `deadline` is missing"),
    ("deadline = 20", "deadline = -1", "`deadline` is -1; it must be a positive number"),
    ("deadline = 20", 'deadline = 20\nname = "x"', "the head of the file: unknown key 'name'"),
    ("deadline = 45", "deadline = 0", "check s00.2: `deadline` is 0"),
    ("deadline = 45", "deadline = nan", "check s00.2: `deadline` is nan"),
    ("deadline = 45", "empty_repeat = 3", "check s00.2: `empty_repeat` is 3; it must be true or false"),
    ('id = "s03"', 'id = "3"', "stage 3: the id must be s and two digits"),
    ('id = "s03"', "", "a [[stage]] without id: `id` is missing"),
    ('id = "s03"', 'id = "s00"', "check s03.1: the id must be the stage's, a dot and a number"),
    ('id = "s03.2"', 'id = "s03.1"', "check 's03.1' occurs twice"),
    ('id = "s03.2"', 'id = "s03.3"', "check s03.3 stands where s03.2 should"),
    ('title = "RMSNorm"', "", "stage s03: `title` is missing"),
    ('title = "RMSNorm"', "title = 3", "stage s03: `title` is 3; it must be text"),
    ('title = "RMSNorm"', 'titel = "RMSNorm"', "stage s03: unknown key 'titel'"),
    ('handout = "03-rmsnorm.md"', 'handout = "04-rmsnorm.md"', "it must be named like 03-name.md"),
    ("points = 1.5", "points = 2", "stage s00 has 2 points but its checks add up to 1.5"),
    ("points = 0.5", "points = 0.25", "check s00.2: `points` is 0.25; it must be a multiple of 0.5"),
    ("points = 0.5", "points = -0.5", "check s00.2: `points` is -0.5"),
    ("points = 0.5", 'points = "1"', "check s00.2: `points` is '1'; it must be a number"),
    ("points = 0.5", "points = true", "check s00.2: `points` is True; it must be a number"),
    ('"kernels/rmsnorm.cu"', '"../rmsnorm.cu"', "must be a plain path below the engine folder"),
    ('"kernels/rmsnorm.cu"', '"/rmsnorm.cu"', "must be a plain path below the engine folder"),
    ('"kernels/rmsnorm.cu"', '"kernels//rmsnorm.cu"', "must be a plain path below the engine folder"),
    ('"kernels/rmsnorm.cu"', '"kernels/rmsnorm.so"', "must end in one of .cu, .cuh, .py and .toml"),
    ('"kernels/rmsnorm.cu"', '"launch.toml"', "file of stage s03 'launch.toml' occurs twice"),
    ('"kernels/rmsnorm.cu"', "7", "stage s03: `files` must be a list of texts"),
    ('calls = ["s00.1"]', 'calls = ["s00.2"]', "task s00.2 calls 's00.2', which is not a task that stands before it"),
    ('calls = ["s00.1"]', 'calls = ["s03.1"]', "task s00.2 calls 's03.1', which is not a task that stands before it"),
    ('calls = ["s00.1"]', 'calls = "s00.1"', "task s00.2: `calls` is 's00.1'; it must be a list"),
    ('calls = ["s00.1"]', 'needs = ["s00.1"]', "task s00.2: unknown key 'needs'; known are id and calls"),
    ('id = "s00.2"\ncalls', 'id = "s00.1"\ncalls', "task 's00.1' occurs twice"),
    ('id = "s00.2"\ncalls', "calls", "a task of stage s00: `id` is missing"),
    ('id = "s00.2"\ncalls', 'id = "s00.3"\ncalls', "those of its stage are s00.1 and s00.3"),
    ('id = "s08.1", calls', 'id = "s08.2", calls', "those of its stage are s08.2"),
    ('"s00.2", "s03.1"] }', '"s00.2"] }, { id = "s08.9" }', "task s08.9: stage s08 has no check of this id"),
    ('{ id = "s08.1", calls = ["s00.2", "s03.1"] }', "7", "a task of stage s08 must be a table"),
    ('runs = ["s08.1"]', 'runs = ["s03.1"]', "task s08.1: check s08.1, after which it is named, does not need it"),
    ('runs = ["s08.1"]', 'runs = ["s03.2"]', "check s08.1 runs 's03.2', which is not a task that stands before it"),
    ('runs = ["s03.1"]', 'runs = ["s08.1"]', "check s03.1 runs 's08.1', which is not a task that stands before it"),
    ('runs = ["s03.1"]', 'runs = ["s04.1"]', "its stage has none up to there"),
    ('runs = ["s08.1"]', "runs = []", "check s08.1 runs no task; list those that it exercises in `runs`"),
    ('runs = ["s08.1"]', "", "check s08.1 runs no task"),
]


@pytest.mark.parametrize(("old", "new", "said"), FAULTS, ids=[f"{said[:50]}" for _, _, said in FAULTS])
def test_each_fault_is_named(old: str, new: str, said: str) -> None:
    assert SOUND.count(old) >= 1
    with pytest.raises(ManifestError) as caught:
        parse_manifest(tomllib.loads(SOUND.replace(old, new, 1)))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("deadline = 20\nstage = []", "it has no stage"),
        ("deadline = 20\nstage = [3]", "a [[stage]] without id must be a table"),
        ('deadline = 20\nstage = "x"', "`stage` is 'x'; it must be a list"),
        (SOUND.replace('[[stage.check]]\nid = "s08.1"\npoints = 1\nruns = ["s08.1"]', "check = []"), "has no check"),
        (
            SOUND.replace('[[stage.check]]\nid = "s08.1"\npoints = 1\nruns = ["s08.1"]', "check = [1]"),
            "[[stage.check]]",
        ),
        (SOUND.replace("s00", "s05").replace('"00-', '"05-'), "out of order"),
        (SOUND.replace("s03", "s00").replace("03-", "00-"), "stage 's00' occurs twice"),
    ],
)
def test_faults_of_the_whole_are_named(document: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(tomllib.loads(document))
    assert said in str(caught.value)


def test_what_is_no_manifest_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "manifest.toml"
    with pytest.raises(ManifestError, match=r"manifest\.toml cannot be read: No such file"):
        load_manifest(path)
    path.write_text("deadline = ")
    with pytest.raises(ManifestError, match=r"manifest\.toml is not valid TOML"):
        load_manifest(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="is not UTF-8 text"):
        load_manifest(path)
    path.write_text(SOUND.replace("points = 1.5", "points = 2"))
    with pytest.raises(ManifestError, match=r"The manifest manifest\.toml is wrong: stage s00 has 2 points"):
        load_manifest(path)


def test_the_kits_own_manifest_is_valid_and_keeps_to_the_points_of_the_course() -> None:
    points = (2, 4, 6, 6, 6, 5, 8, 7, 7, 7, 5, 7, 6, 7, 4, 6, 7)
    stages = load_manifest(MANIFEST).stages
    assert [stage.number for stage in stages] == list(range(len(stages)))
    assert [stage.points for stage in stages] == list(points[: len(stages)])
