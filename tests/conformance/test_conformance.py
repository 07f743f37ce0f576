"""Every case gives what NumPy expects on the emulator: plain and instrumented, whatever the order of the threads."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from grader.emulator.compiler.toolchain import compile_module
from tests.conformance.cases import ALONE, CASES
from tests.conformance.devices import Outcome, run_emulated
from tests.conformance.kernels.warps import bits
from tests.conformance.table import OPTIONS, Case, errors, source
from tests.emulator.device_client import start_device

ORDERS = (0, 1, 7)


@functools.cache
def compile_modules(is_instrumented: bool) -> None:
    """Compile all modules into the cache, on all cores: a device compiles one after the other."""
    modules = dict.fromkeys(case.module for case in CASES)
    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(compile_module, source(name), OPTIONS, (), instrumented=is_instrumented) for name in modules
        ]
    for job in jobs:
        job.result()


@functools.cache
def outcome(is_checked: bool, order_seed: int) -> Outcome:
    for is_instrumented in (False, True) if is_checked else (False,):
        compile_modules(is_instrumented)
    return run_emulated(order_seed=order_seed, observe=is_checked)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("order_seed", ORDERS)
@pytest.mark.parametrize("is_checked", [False, True], ids=["plain", "checked"])
def test_case(is_checked: bool, order_seed: int, case: Case) -> None:
    found = outcome(is_checked, order_seed)
    assert case.name in found.results, found.failure
    assert errors(case.launch(), found.results[case.name]) <= case.ulps


@pytest.mark.parametrize("order_seed", ORDERS)
def test_no_reports(order_seed: int) -> None:
    assert outcome(True, order_seed).observed["reports"] == []


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.name)
def test_what_a_kernel_says(case: Case) -> None:
    found = run_emulated([case.name])
    assert case.says in found.printed + found.failure


BRANCHES = """
extern "C" __global__ void branches(unsigned* masks, int n) {
    masks[threadIdx.x] = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (i % 3 == 0) {
            masks[threadIdx.x] |= __activemask();
        } else {
            masks[threadIdx.x] |= __activemask();
        }
    }
    __syncthreads();
}
"""


def test_lanes_in_the_same_branch_are_together() -> None:
    """CUDA does not promise it, but every GPU does it, and code that gathers such lanes is slow and odd otherwise."""
    with start_device() as device:
        masks = device.empty(64, np.uint32)
        device.compile(BRANCHES)("branches", masks, 60, block=(64,))
    thirds = np.arange(64) % 3 == 0
    in_loop = np.arange(64) < 60
    for warp in (slice(0, 32), slice(32, 64)):
        for lanes in (thirds & in_loop, ~thirds & in_loop):
            together = bits(lanes[warp])
            assert (masks[warp][lanes[warp]] == together).all()
