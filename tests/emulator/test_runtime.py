"""What kernels do on the emulated GPU: threads, warps, shared memory, atomics, limits and errors."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.emulator.device_client import DeviceClient, start_device


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceClient]:
    with start_device() as client:
        yield client


def test_every_thread_of_a_grid_runs_once(device: DeviceClient) -> None:
    kernels = device.compile("""
    extern "C" __global__ void mark(int* out) {
        const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        atomicAdd(&out[block * (blockDim.x * blockDim.y * blockDim.z) + thread], 1);
    }""")
    out = device.array(np.zeros(2 * 3 * 4 * 5 * 3 * 2, np.int32))
    kernels("mark", out, grid=(2, 3, 4), block=(5, 3, 2))
    assert (out == 1).all()
