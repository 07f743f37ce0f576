"""What `make grade` tells a student of each kind of bug that the emulator finds in a kernel, on a CPU."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from grader import KIT
from tests.graded.grading import failures, grade, verdicts


class Planted(NamedTuple):
    """One edit of a kernel of the solutions, and what a check of it must say."""

    check: str
    verdict: str
    file: str
    find: str
    replace: str
    lines: list[str]
    """Texts of the lines that the message names."""
    says: list[str]
    """Parts of the message."""


PLANTED = [
    Planted(
        check="s00.1",
        verdict="DATA_RACE",
        file="vector_add.cu",
        find="    if (i < n) {\n        out[i] =",
        replace="    __shared__ int ticket;\n"
        "    if (threadIdx.x == 0) ticket = 0;\n"
        "    __syncthreads();\n"
        "    if (i < n) {\n        out[blockIdx.x * blockDim.x + atomicAdd(&ticket, 1)] =",
        lines=[],
        says=["vector_add gives other results when its threads run in another order"],
    ),
    Planted(
        check="s05.1",
        verdict="DATA_RACE",
        file="softmax.cu",
        find="    __syncthreads();  // every warp's sum is written before any thread adds them up\n",
        replace="",
        lines=["warp_sums[warp] = sum;", "total += warp_sums[w];"],
        says=["shared warp_sums[", " then ", "with no barrier in between: put __syncthreads() between the two"],
    ),
    Planted(
        check="s02.2",
        verdict="OUT_OF_BOUNDS",
        file="residual_add.cu",
        find="if (i < num_elements) {",
        replace="{",
        lines=["x[i] = __float2bfloat16("],
        says=["just past its end: ", " elements. Compare the index with the size before you use it: the last is "],
    ),
    Planted(
        check="s06.2",
        verdict="UNINITIALISED_READ",
        file="matmul.cu",
        find="w_tile[row][column] = w_row < N && k < K ? __bfloat162float(w[w_row * K + k]) : 0.0f;",
        replace="if (w_row < N && k < K) w_tile[row][column] = __bfloat162float(w[w_row * K + k]);",
        lines=["sum += x_tile[threadIdx.y][k] * w_tile[threadIdx.x][k];"],
        says=["reads shared w_tile[", "which nobody has written. Write all of it first"],
    ),
    Planted(
        check="s03.1",
        verdict="BARRIER_DIVERGENCE",
        file="rmsnorm.cu",
        find="        __syncthreads();  // the previous level's sums are written before they are read\n"
        "        if (threadIdx.x < half) {\n",
        replace="        if (threadIdx.x < half) {\n            __syncthreads();\n",
        lines=["            __syncthreads();", "    __syncthreads();  // thread 0 has written the total"],
        says=[
            "64 threads wait at the barrier in line ",
            "All threads of a block must reach the same barrier: move the one in line 31",
            " out of the condition or the loop.",
        ],
    ),
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels of a submission with all the bugs, each in a stage of its own: of others the summary tells less."""
    submission = tmp_path_factory.mktemp("planted") / "submission"
    shutil.copytree(KIT / "solutions", submission)
    folder = submission / "engine" / "kernels"
    for bug in PLANTED:
        text = (folder / bug.file).read_text()
        assert text.count(bug.find) == 1, bug.find
        (folder / bug.file).write_text(text.replace(bug.find, bug.replace))
    return folder


@pytest.fixture(scope="module")
def results(kernels: Path) -> dict[str, Any]:
    checks = [word for bug in PLANTED for word in ("--check", bug.check)]
    return grade(kernels.parent.parent, "--device", "cpu", *checks)


@pytest.mark.parametrize("bug", PLANTED, ids=[f"{bug.verdict}-{bug.check}" for bug in PLANTED])
def test_a_student_is_told_of_the_bug(bug: Planted, kernels: Path, results: dict[str, Any]) -> None:
    message = failures(results)[bug.check]
    assert verdicts(results)[bug.check] == bug.verdict, message
    text = (kernels / bug.file).read_text().split("\n")
    for part in bug.lines:
        number = next(i for i, line in enumerate(text, 1) if line.lstrip().startswith(part.lstrip()) and part in line)
        assert f"{bug.file}:{number}: " in message or f"line {number}" in message, message
    output = " ".join(results["output"].split())
    for part in [*bug.says, *(["thread (", " block "] if bug.lines else [])]:
        assert part in message, message
        assert part in output, output
