"""Runs cases with whichever PyCUDA is on the path, the genuine or the emulated one.

    python -m tests.conformance.program RESULTS [MODULE:KERNEL ...]

RESULTS.npz gets the bytes of each array as "module:kernel/i". The named cases run, or all. What the kernels print is
printed here; errors are told at the end, on stderr.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pycuda.driver as driver
from pycuda.compiler import SourceModule

from tests.conformance.cases import ALONE, CASES
from tests.conformance.numbers.numerics import FORMULAS
from tests.conformance.table import OPTIONS, Case, source

DEFAULT_SHARED = 48 * 1024


def run(case: Case, module: Any) -> list[np.ndarray]:
    """Bytes of the arrays among a case's arguments after its launch, and of the variables that it reads."""
    launch = case.launch()
    for name, value in launch.written.items():
        driver.memcpy_htod(module.get_global(name)[0], value.reshape(-1).view(np.uint8))
    device = [(driver.to_device(array.reshape(-1).view(np.uint8)), array) for array in launch.arrays]
    pointers = iter([np.intp(int(memory)) for memory, _ in device])
    packed = [next(pointers) if isinstance(value, np.ndarray) else value for value in launch.arguments]
    kernel = module.get_function(case.kernel)
    if case.shared > DEFAULT_SHARED:
        kernel.set_attribute(driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, case.shared)
    kernel(*packed, grid=case.grid, block=case.block, shared=case.shared)
    driver.Context.synchronize()
    found = [driver.from_device(memory, (array.nbytes,), np.uint8) for memory, array in device]
    for name, value in launch.read.items():
        address, size = module.get_global(name)
        if size != value.nbytes:
            raise ValueError(f"{name} has {size} bytes, not {value.nbytes}")
        found.append(driver.from_device(address, (size,), np.uint8))
    return found


def run_all(cases: Sequence[Case]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Results, and what went wrong: a case that fails does not keep the others from running."""
    modules: dict[str, Any] = {}
    results: dict[str, np.ndarray] = {}
    problems: list[str] = []
    for case in cases:
        try:
            if case.module not in modules:
                modules[case.module] = None
                modules[case.module] = SourceModule(source(case.module), no_extern_c=True, options=list(OPTIONS))
            if modules[case.module] is None:
                raise ValueError("its module does not compile")
            for i, array in enumerate(run(case, modules[case.module])):
                results[f"{case.name}/{i}"] = array
        except (driver.Error, driver.CompileError, TypeError, ValueError) as problem:
            problems.append(f"{case.name}: {type(problem).__name__}: {problem}")
    return results, problems


def main() -> None:
    path, *names = sys.argv[1:]
    driver.init()
    context = driver.Device(0).make_context()
    try:
        named = [case for case in [*CASES, *ALONE, *FORMULAS] if case.name in names]
        results, problems = run_all(named if names else CASES)
        np.savez(path, allow_pickle=False, **results)
        if problems:
            sys.exit("\n".join(problems))
    finally:
        context.pop()


if __name__ == "__main__":
    main()
