"""nvcc, which decides what is CUDA, compiles the list of bugs as it compiles the kit's kernels."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bugs.bugs import source_text, sources
from tests.tools import require_tool


def test_nvcc_compiles_the_bugs(tmp_path: Path) -> None:
    nvcc = require_tool("nvcc", "install the CUDA Toolkit or nvidia-cuda-nvcc")
    code = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in (80, 90)]

    def compile_file(name: str) -> str:
        source = tmp_path / name
        source.write_text(source_text(name))
        command = [nvcc, *code, "-std=c++17", "-fatbin", "-o", f"{source}.fatbin", str(source)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return result.stdout + result.stderr if result.returncode else ""

    with ThreadPoolExecutor() as pool:
        assert [log for log in pool.map(compile_file, [path.name for path in sources()]) if log] == []
