"""What reports of the checker advise, on kernels with mistakes that beginners make."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.emulator.device_client import DeviceClient, DeviceFailed, start_device

TILES = """extern "C" __global__ void tiles(float* out, const float* x, int n) {
    constexpr int TILE = 8;
    __shared__ float tile[TILE][TILE + 1];
    float sum = 0;
    for (int begin = 0; begin < n; begin += TILE) {
        tile[threadIdx.y][threadIdx.x] = x[begin + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += tile[threadIdx.y][k];
    }
    out[threadIdx.y * TILE + threadIdx.x] = sum;
}
"""
TREE = """extern "C" __global__ void tree(float* out, const float* x, int n) {
    extern __shared__ float partial[];  // a sum of each thread
    partial[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int half = n / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    __syncthreads();
    out[threadIdx.x] = partial[0];
}
"""
BRANCH = """extern "C" __global__ void branch(float* out, const float* x, int n) {
    __shared__ float row[64];
    row[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < n) {
        __syncthreads();
    }
    __syncthreads();
    out[threadIdx.x] = row[63 - threadIdx.x];
}
"""
WARPS = """extern "C" __global__ void warps(float* out, const float* x, int n) {
    float sum = x[threadIdx.x];
    for (int d = n; d > 0; d /= 2) sum += __shfl_xor_sync(__activemask(), sum, d);
    out[threadIdx.x] = sum;
}
"""
HALVES = """extern "C" __global__ void halves(float* out, const float* x, int n) {
    float sum = x[threadIdx.x];
    if (threadIdx.x < n) sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    __syncthreads();
    out[threadIdx.x] = sum;
}
"""
EARLY = """extern "C" __global__ void early(float* out, const float* x, int n) {
    __shared__ float tile[8][8];
    if (threadIdx.y >= n) return;
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 8 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""
NOWHERE = """extern "C" __global__ void nowhere(float* out, const float* x, int n) {
    const float* row = nullptr;
    out[threadIdx.x] = n > 0 ? row[threadIdx.x] : x[0];
}
"""


class Mistake(NamedTuple):
    """A kernel with three arguments, arrays of 64 elements; `n` is the last of them."""

    source: str
    n: int
    block: tuple[int, ...]
    shared: int
    verdict: str
    says: tuple[str, ...]
    never: str
    """What would mislead."""


MISTAKES = [
    Mistake(
        TILES,
        16,
        (8, 8),
        0,
        "DATA_RACE",
        (
            "tiles.cu:8: thread ",
            "writes shared tile[4][0]",
            " in line 6; thread ",
            " of the same block then reads it in line 8, in another round of the loop, with no barrier in "
            "between: every round needs a __syncthreads() between its reads and the writes of the next.",
        ),
        "between the two",
    ),
    Mistake(
        TREE,
        64,
        (64,),
        256,
        "DATA_RACE",
        (
            " reads shared partial[1] in line 6; thread (1,0,0) of the same block then writes it in line 6, in another "
            "round of the loop",
        ),
        "atomic",
    ),
    Mistake(
        TREE,
        64,
        (64,),
        0,
        "OUT_OF_BOUNDS",
        (
            "writes shared partial[0], but the launch gives 0 bytes of dynamic shared memory. ",
            "Set `shared` in launch.toml: [tree] shared = …, 4 bytes for each float",
        ),
        "byte 0",
    ),
    Mistake(
        BRANCH,
        20,
        (64,),
        0,
        "BARRIER_DIVERGENCE",
        (
            "branch.cu:5: in block (0,0,0) 20 threads wait at the barrier in line 5, the first is thread (0,0,0); 44 "
            "threads wait at the barrier in line 7, the first is thread (20,0,0).",
            "move the one in line 5 out of the condition",
        ),
        "meets",
    ),
    Mistake(
        WARPS,
        16,
        (40,),
        0,
        "BARRIER_DIVERGENCE",
        (
            "which this warp does not have, since the block has 40 threads. ",
            "Give the block a multiple of 32 threads (`block` in launch.toml)",
        ),
        "before the lanes part",
    ),
    Mistake(
        HALVES,
        16,
        (32,),
        0,
        "BARRIER_DIVERGENCE",
        ("halves.cu:3: thread (0,0,0) ", "16 wait at __shfl_xor_sync in line 3, the first is thread (0,0,0)"),
        "halves.cu:4",
    ),
    Mistake(
        EARLY,
        7,
        (8, 8),
        0,
        "UNINITIALISED_READ",
        (
            "reads shared tile[7][4]",
            "8 threads of a block, (0,7,0) the first, have returned before a barrier: they write nothing more.",
        ),
        "tile[56]",
    ),
    Mistake(
        NOWHERE,
        1,
        (32,),
        0,
        "OUT_OF_BOUNDS",
        ("reads address 0x0, a null pointer. Pass an array, or test the pointer before you use it.",),
        "Copy the array",
    ),
]


@pytest.fixture
def device() -> Iterator[DeviceClient]:
    with start_device() as device:
        yield device


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{mistake.verdict}-{i}" for i, mistake in enumerate(MISTAKES)])
def test_a_report_says_what_to_do(mistake: Mistake, device: DeviceClient) -> None:
    message = next(r["message"] for r in reports(mistake, device) if r["verdict"] == mistake.verdict)
    for part in mistake.says:
        assert part in message
    assert mistake.never not in message


def reports(mistake: Mistake, device: DeviceClient) -> list[dict[str, Any]]:
    name = mistake.source.split("(")[0].split()[-1]
    kernels = device.compile(f'#line 1 "{name}.cu"\n{mistake.source}')
    out, x = device.array(np.zeros(64, np.float32)), device.array(np.arange(1, 65, dtype=np.float32))
    device.control("observe", counted=False, checked=True)
    with contextlib.suppress(DeviceFailed):  # some mistakes end the launch too
        kernels(name, out, x, mistake.n, block=mistake.block, shared=mistake.shared)
    found: list[dict[str, Any]] = device.control("observed")["reports"]
    return found
