"""Launches kernels of the bug list on a GPU, one after the other: `python -m tests.bugs.on_gpu FOLDER KERNEL...`

FOLDER holds a cubin for each .cu file. What goes wrong is for the tool to say that watches this process.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pycuda.autoinit  # noqa: F401
import pycuda.driver as driver

from tests.bugs.bugs import Array, Case, load_bugs


def main(folder: Path, names: list[str]) -> None:
    cases = {case.kernel: (bug.file, case) for bug in load_bugs() for case in (bug.wrong, bug.right) if case}
    modules: dict[str, Any] = {}
    for name in names:
        file, case = cases[name]
        if file not in modules:
            modules[file] = driver.module_from_file(str(folder / f"{file}bin"))
        launch(modules[file].get_function(name), case)


def launch(kernel: Any, case: Case) -> None:
    """Launch and wait."""
    held: list[Any] = []
    passed = [_passed(argument, held) for argument in case.arguments]
    kernel(*(value for value in passed if value is not None), grid=case.grid, block=case.block, shared=case.shared)
    driver.Context.synchronize()


def _passed(argument: Any, held: list[Any]) -> Any:
    """The kernel's argument; None for an array that is not passed. Memory is kept in `held`."""
    if argument == "null":
        return np.intp(0)
    if not isinstance(argument, Array):
        return np.float32(argument) if isinstance(argument, float) else np.int32(argument)
    if argument.place == "host":
        return np.intp(argument.values.ctypes.data)
    memory = driver.mem_alloc(argument.bytes)
    pointer = None if argument.place == "beside" else np.intp(int(memory))
    if argument.values.size:
        driver.memcpy_htod(memory, argument.values)
    if argument.place == "freed":
        memory.free()
    held.append(memory)
    return pointer


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
