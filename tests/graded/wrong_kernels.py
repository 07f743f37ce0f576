"""The solutions with kernels that compute nothing, everywhere or only where they are looked at."""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from given.contracts import CONTRACTS

from grader import KIT

KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\w+\)\s+)?(\w+)\(([^)]*)\) \{\n')
SCRATCH = "__device__ unsigned char scratch[1 << 24];  // instead of any output\n\n"

Edit = Callable[[str, list[str]], str]
"""The lines that begin a kernel's body, of its name and the names of its parameters; empty: it stays as it is."""


def write_with_kernels(submission: Path, begin: Edit, before: str = "") -> Path:
    """Copy the solutions to `submission`; each kernel begins with these lines, a file's first one behind `before`."""
    shutil.copytree(KIT / "solutions", submission)
    for file in sorted((submission / "engine/kernels").glob("*.cu")):
        source = file.read_text()
        kernels = list(KERNEL.finditer(source))
        assert len(kernels) == source.count("__global__"), f"{file.name} has a kernel of another form"
        for kernel in reversed(kernels):
            parameters = [text.split()[-1].lstrip("*") for text in kernel[2].split(",")]
            source = source[: kernel.end()] + begin(kernel[1], parameters) + source[kernel.end() :]
        place = kernels[0].start()
        file.write_text(source[:place] + before + source[place:])
    return submission


def returning(name: str, parameters: list[str]) -> str:
    """The kernel returns at once."""
    return "    return;\n"


def storing_elsewhere(name: str, parameters: list[str]) -> str:
    """The kernel does all its work, and leaves its outputs as they were."""
    outputs = parameters[: len(CONTRACTS[name].outputs)]
    return "".join(f"    {output} = reinterpret_cast<decltype({output})>(scratch);\n" for output in outputs)


def returning_at(shapes: Mapping[str, set[tuple[int, ...]]]) -> Edit:
    """The kernels return at once where their int arguments are these."""

    def begin(name: str, parameters: list[str]) -> str:
        contract = CONTRACTS[name]
        ints = parameters[len(contract.arrays) :][: len(contract.ints)]
        conditions = [
            " && ".join(f"{parameter} == {value}" for parameter, value in zip(ints, values, strict=True))
            for values in sorted(shapes.get(name, ()))
        ]
        return "".join(f"    if ({condition}) {{\n        return;\n    }}\n" for condition in conditions)

    return begin
