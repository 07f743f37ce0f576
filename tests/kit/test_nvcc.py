"""The emulator takes any C++; nvcc decides what is CUDA. Every kernel file must compile for the GPUs in use."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grader import KIT
from grader.emulator.compiler.headers import GIVEN
from tests.tools import require_tool

ARCHITECTURES = (80, 86, 90, 120) if os.environ.get("PAGEDLAB_ALL") == "1" else (80, 90)
SOURCES = [
    path.relative_to(KIT)
    for folder in ("solutions", "starter", "tests/alternatives", "tests/conformance")
    for path in sorted((KIT / folder).rglob("*.cu"))
]
STUB_MACRO = "-DNOT_IMPLEMENTED(id)="


@pytest.fixture(scope="module")
def compilations(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, subprocess.CompletedProcess[str]]:
    """One nvcc process a file, all architectures in it, as many at a time as there are cores."""
    nvcc = require_tool("nvcc", "install the CUDA Toolkit or nvidia-cuda-nvcc")
    code = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in ARCHITECTURES]
    folder = tmp_path_factory.mktemp("nvcc")

    def compile_file(source: Path) -> subprocess.CompletedProcess[str]:
        target = folder / f"{'_'.join(source.parts)}.fatbin"
        command = [nvcc, *code, "-std=c++17", STUB_MACRO, f"-I{GIVEN}", "-fatbin", "-o", str(target), str(KIT / source)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    with ThreadPoolExecutor() as pool:
        return dict(zip(SOURCES, pool.map(compile_file, SOURCES), strict=True))


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_nvcc_compiles_the_kernel(source: Path, compilations: dict[Path, subprocess.CompletedProcess[str]]) -> None:
    result = compilations[source]
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_solution_kernel_is_compiled() -> None:
    assert len(SOURCES) >= 10
