"""The student release: what is in it, that it grades, and that an update leaves the student's work alone."""

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from grader import KIT, VERSION
from grader.release.record import ReleaseError
from grader.release.release import make_release
from grader.release.update import read_release, update
from tests.graded.grading import failures, grade, verdicts
from tests.release.secrets import secret_regions

STAGES = ("--stage", "0", "3", "8", "14")

COMMON_LINE = re.compile(r"import |from \S+ import |\w+: .+,$")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_release(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def home(release: Path, tmp_path: Path) -> Path:
    """A student's folder: the release, unpacked, using this kit's .venv."""
    with zipfile.ZipFile(release) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / f"pagedlab-{VERSION}"
    (folder / ".venv").symlink_to(KIT / ".venv")
    return folder


def edited_release(release: Path, folder: Path, version: str, changes: dict[str, str]) -> Path:
    """A release of another version in which some files are new or changed."""
    target = folder / f"pagedlab-{version}.zip"
    with zipfile.ZipFile(release) as archive:
        files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    files |= {name: content.encode() for name, content in changes.items()} | {"VERSION": f"{version}\n".encode()}
    generated = json.loads(files["starter/.generated.json"])
    for name, content in changes.items():
        if name.startswith("starter/"):
            generated["files"][name.removeprefix("starter/")] = hashlib.sha256(content.encode()).hexdigest()
    files["starter/.generated.json"] = json.dumps(generated).encode()
    del files["release.json"]
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files["release.json"] = json.dumps({"version": version, "files": hashes}).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"pagedlab-{version}/{name}", data)
    return target


def test_holds_nothing_of_the_instructor(release: Path) -> None:
    with zipfile.ZipFile(release) as archive:
        texts = {name.partition("/")[2]: archive.read(name).decode("utf-8", "replace") for name in archive.namelist()}
    withheld = ("solutions/", *(f"tests/{folder}/" for folder in ("campaigns", "gpu", "graded", "kit", "release")))
    assert [name for name in texts if name.startswith(withheld)] == []
    assert [name for name in texts if "mutant" in name or "attack" in name or "hidden" in name] == []
    assert "maintainer.mk" not in texts
    modules = {name for name in texts if name.startswith("grader/release/")}
    assert modules == {f"grader/release/{name}.py" for name in ("__init__", "record", "update")}
    assert "LICENSE" in texts
    assert {name for name in texts if name.startswith("assignments/") and not name.endswith((".md", ".svg"))} == set()
    solutions = [path for path in (KIT / "solutions").rglob("*") if path.suffix in (".cu", ".py")]
    secret = {pair for path in solutions for region in secret_regions(path) for pair in pairs(region)}
    assert len(secret) > 300
    assert {name: found for name, text in texts.items() if (found := secret & set(pairs(text.split("\n"))))} == {}


def pairs(lines: list[str]) -> list[tuple[str, str]]:
    """Neighbours among the lines that say something: long enough, neither imports nor parameters with their types."""
    stripped = [line.strip() for line in lines]
    return list(itertools.pairwise(line for line in stripped if len(line) > 15 and not COMMON_LINE.match(line)))


def test_same_bytes_twice(release: Path, tmp_path: Path) -> None:
    assert make_release(tmp_path).read_bytes() == release.read_bytes()


def test_solution_in_it_scores_full_points_and_its_starter_nothing(home: Path) -> None:
    assert set(verdicts(grade(home / "starter", "--device", "cpu", kit=home)).values()) == {"NOT_IMPLEMENTED"}
    shutil.copytree(KIT / "solutions/engine", home / "starter/engine", dirs_exist_ok=True)
    results = grade(home / "starter", "--device", "cpu", *STAGES, kit=home)
    assert failures(results) == {}
    assert results["total"] == results["max"] > 0


def test_its_readme_commands_work(home: Path) -> None:
    result = subprocess.run(["make", "grade", "STAGE=0"], cwd=home, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "NOT_IMPLEMENTED" in result.stdout
    # All of its `make test` runs in `make test-all`; here one suite stands for it, as all of them run in this kit too.
    command = ["make", "test"] if os.environ.get("PAGEDLAB_ALL") else [sys.executable, "-m", "tests.run", "launchers"]
    result = subprocess.run(command, cwd=home, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:]
    assert " 0 failed" in result.stdout.strip().split("\n")[-1]


def test_update_keeps_work_and_adds_stubs(release: Path, home: Path, tmp_path: Path) -> None:
    mine, untouched = home / "starter/engine/kernels/rmsnorm.cu", home / "starter/engine/kernels/softmax.cu"
    mine.write_text("// my work\n")
    (home / "starter/engine/rope.py").write_text("# my work\n")
    newer = edited_release(
        release,
        tmp_path,
        "9.0.0",
        {
            "starter/engine/kernels/rmsnorm.cu": "// new contract\n",
            "starter/engine/rope.py": "# new contract\n",
            "starter/engine/kernels/softmax.cu": "// new stub\n",
            "starter/engine/kernels/added.cu": "// added\n",
            "assignments/new.md": "new\n",
            "CHANGELOG.md": "# Changelog\n\n## 9.0.0\n\nrmsnorm takes\na stride.\n\nFor maintainers: new\nrooms.\n\n"
            f"## 8.0.0\n\nSmall.\n\n## {VERSION}\n\nKnown already.\n",
        },
    )
    done = update(newer, home)
    assert mine.read_text() == "// my work\n"
    assert mine.with_name("rmsnorm.cu.new").read_text() == "// new contract\n"
    beside = [line for line in done if ".new" in line]
    assert beside == [
        "starter/engine/kernels/rmsnorm.cu: its stub changed; the new one is rmsnorm.cu.new beside yours.",
        "starter/engine/rope.py: its stub changed; the new one is rope.py.new beside yours.",
    ]
    end = f"The kit is now version 9.0.0 (it was {VERSION}).\n\nNew in 9.0.0:\n\nrmsnorm takes\na stride.\n\n"
    assert "\n".join(done).endswith(f"{end}New in 8.0.0:\n\nSmall.")
    assert untouched.read_text() == "// new stub\n"
    assert (home / "starter/engine/kernels/added.cu").exists()
    assert (home / "assignments/new.md").exists()
    assert (home / f"starter.before-{VERSION}/engine/kernels/rmsnorm.cu").read_text() == "// my work\n"
    assert (home / "VERSION").read_text() == "9.0.0\n"


def test_the_update_command_of_a_release_takes_a_newer_one(release: Path, home: Path, tmp_path: Path) -> None:
    mine = home / "starter/engine/kernels/rmsnorm.cu"
    mine.write_text("// my work\n")
    newer = edited_release(release, tmp_path, "9.0.0", {"assignments/new.md": "new\n"})
    result = subprocess.run(["make", "update", f"FROM={newer}"], cwd=home, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"The kit is now version 9.0.0 (it was {VERSION})." in result.stdout
    assert (home / "VERSION").read_text() == "9.0.0\n"
    assert (home / "assignments/new.md").exists()
    assert mine.read_text() == "// my work\n"


def test_update_says_where_the_parts_of_a_split_file_belong(release: Path, home: Path, tmp_path: Path) -> None:
    (home / "starter/engine/kernels/rmsnorm.cu").write_text("// my work\n")
    changelog = (
        "# Changelog\n\n## 9.1.0\n\nNew.\n\n## 9.0.0\n\nSplit.\n\n"
        "- `engine/kernels/rmsnorm.cu`: `rmsnorm_tree` now belongs in\n  `engine/kernels/tree.cu`.\n"
        "- `engine/kernels/softmax.cu`: nothing is left.\n\n"
        f"## {VERSION}\n\n- `engine/kernels/rmsnorm.cu`: known already.\n"
    )
    newer = edited_release(release, tmp_path, "9.1.0", {"CHANGELOG.md": changelog})
    lines = [line for line in update(newer, home) if line.startswith("starter/engine/")]
    assert lines == ["starter/engine/kernels/rmsnorm.cu: `rmsnorm_tree` now belongs in `engine/kernels/tree.cu`."]


def test_update_refuses_uncommitted_work(release: Path, home: Path, tmp_path: Path) -> None:
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=s", "-c", "user.email=s@s", "commit", "-qm", "1"]):
        subprocess.run(["git", *command], cwd=home, check=True)
    (home / "starter/engine/kernels/rmsnorm.cu").write_text("// half done\n")
    before = (home / "VERSION").read_text()
    with pytest.raises(ReleaseError, match="commit them first"):
        update(edited_release(release, tmp_path, "9.0.0", {}), home)
    assert (home / "VERSION").read_text() == before


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "there is no file"), (b"not a zip", "not a readable zip"), (b"", "not a readable zip")],
)
def test_update_refuses_what_is_no_release(home: Path, tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "x.zip"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ReleaseError, match=sentence):
        update(path, home)


def test_update_refuses_an_older_or_damaged_one(release: Path, home: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="older than"):
        update(edited_release(release, tmp_path, "0.0.1", {}), home)
    with zipfile.ZipFile(tmp_path / "escape.zip", "w") as archive:
        archive.writestr("pagedlab/../../escaped.txt", "x")
    with pytest.raises(ReleaseError, match="which no release has"):
        update(tmp_path / "escape.zip", home)
    damaged = tmp_path / "damaged.zip"
    with zipfile.ZipFile(release) as source, zipfile.ZipFile(damaged, "w") as target:
        for name in source.namelist():
            target.writestr(name, b"changed" if name.endswith("Makefile") else source.read(name))
    with pytest.raises(ReleaseError, match="damaged at Makefile"):
        update(damaged, home)
    with pytest.raises(ReleaseError, match="use git pull"):
        update(release, tmp_path)


def test_a_broken_byte_in_a_release_is_refused_or_harmless(release: Path, tmp_path: Path) -> None:
    content, whole, refused = release.read_bytes(), read_release(release), 0
    for position in range(7, len(content), len(content) // 40):
        broken = tmp_path / "broken.zip"
        broken.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        try:
            assert read_release(broken) == whole
        except ReleaseError:
            refused += 1
    assert refused > 30


def test_update_command_says_what_is_wrong_without_a_traceback(home: Path) -> None:
    result = subprocess.run(["make", "update", "FROM=nothing.zip"], cwd=home, capture_output=True, text=True)
    assert result.returncode != 0
    assert "there is no file nothing.zip" in result.stderr
    assert "Traceback" not in result.stderr
