"""Every expression gives the number that NumPy expects, and the instrumented build the same one as the plain build."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from grader.emulator.compiler.toolchain import compile_module
from tests.conformance.distance import distance
from tests.conformance.numbers.formulas import Formulas
from tests.conformance.numbers.numerics import FORMULAS, MODULES
from tests.conformance.table import Case, Launch, errors, source
from tests.emulator.device_client import DeviceClient, Kernels, start_device
from tests.tools import require_tool

FEW = 512  # elements that the instrumented build computes: of all, in an order that is drawn


class Device:
    """A device process with all modules."""

    def __init__(self, client: DeviceClient, *, is_instrumented: bool) -> None:
        self.client = client
        self.is_instrumented = is_instrumented
        self.modules: dict[str, Kernels] = {
            formulas.module: client.compile(source(formulas.module)) for formulas in MODULES
        }
        if is_instrumented:
            client.control("observe", counted=True, checked=True)

    def run(self, case: Case, launch: Launch) -> list[np.ndarray]:
        """The arrays among the arguments afterwards; the instrumented build computes the first elements only."""
        on_device = [self.client.array(array.reshape(-1).view(np.uint8)) for array in launch.arrays]
        for array in on_device[1:]:
            pointer = self.client.pointers[id(array)]
            self.client.send("copied", to="device", ptr=pointer, bytes=array.nbytes)
        count = int(launch.arguments[-1])
        threads = min(FEW, count) if self.is_instrumented else count
        self.modules[case.module](case.kernel, *on_device, threads, grid=case.grid, block=case.block)
        results = [
            found.copy().view(array.dtype).reshape(array.shape)
            for found, array in zip(on_device, launch.arrays, strict=True)
        ]
        for array in on_device:
            self.client.send("free", ptr=self.client.pointers.pop(id(array)))
        return results


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[Device, Device]]:
    """With plain and with instrumented builds, all compiled at the same time."""

    def compiled(build: tuple[Formulas, bool]) -> None:
        compile_module(source(build[0].module), [], [], instrumented=build[1])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compiled, [(formulas, flag) for formulas in reversed(MODULES) for flag in (False, True)]))
    with start_device() as first, start_device() as second:
        yield Device(first, is_instrumented=False), Device(second, is_instrumented=True)


@pytest.mark.parametrize("case", FORMULAS, ids=lambda case: case.name)
def test_formula(devices: tuple[Device, Device], case: Case) -> None:
    plain, instrumented = devices
    launch = case.launch()
    results = plain.run(case, launch)
    assert errors(launch, results) <= case.ulps

    part = instrumented.run(case, launch)[0]
    computed = part.size * min(FEW, int(launch.arguments[-1])) // int(launch.arguments[-1])
    assert distance(part[:computed], results[0][:computed]) == 0
    assert (part[computed:].view(np.uint8) == 0xA5).all()


def test_checker_has_nothing_to_say(devices: tuple[Device, Device]) -> None:
    assert devices[1].client.control("observed")["reports"] == []


@pytest.mark.parametrize("formulas", MODULES, ids=lambda formulas: formulas.module)
def test_nvcc_knows_every_formula(formulas: Formulas, tmp_path: Path) -> None:
    nvcc = require_tool("nvcc", "install the CUDA Toolkit or nvidia-cuda-nvcc")
    (tmp_path / "kernel.cu").write_text(source(formulas.module))
    command = [nvcc, "-std=c++17", "-arch=compute_80", "-ptx", "-o", "kernel.ptx", "kernel.cu"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
