"""Launches that CUDA refuses, and kernels that go wrong: which error, and what is said about it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from grader.ipc.framing import receive_frame
from tests.emulator.device_client import CompileFailed, DeviceClient, DeviceFailed, start_device


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceClient]:
    with start_device() as client:
        yield client


@pytest.fixture
def own_device() -> Iterator[DeviceClient]:
    """A device of the test's own, for errors that last."""
    with start_device(capacity=64 << 20) as client:
        yield client


def error_of(device: DeviceClient, source: str, name: str, *arguments: Any, **launch: Any) -> dict[str, Any]:
    with pytest.raises(DeviceFailed) as caught:
        device.compile(source)(name, *arguments, **launch)
    return caught.value.error


COPY = 'extern "C" __global__ void __launch_bounds__(128) copy(float* out, int n) { if (n == 1) *out = blockDim.x; }'


@pytest.mark.parametrize(
    "launch",
    [
        {"block": (2048,)},
        {"block": (129,)},
        {"block": (1, 1, 65)},
        {"block": (0,)},
        {"grid": (1, 70000)},
        {"grid": (0,)},
        {"shared": 99 * 1024 + 1},
        {"shared": -1},
    ],
    ids=str,
)
def test_launches_beyond_the_limits_are_refused(device: DeviceClient, launch: dict[str, object]) -> None:
    out = device.empty(1)
    error = error_of(device, COPY, "copy", out, 1, **launch)
    assert (error["code"], error["text"]) == (1, "invalid argument")
    assert np.isnan(out[0])
    device.compile(COPY)("copy", out, 1, block=(128,), shared=99 * 1024)  # refusals do not last
    assert out[0] == 128


def test_too_few_argument_bytes_are_refused(device: DeviceClient) -> None:
    module = device.compile(COPY).answer["module"]
    device.launch(module, "copy", b"\0" * 8, (1,), (1,))
    with pytest.raises(DeviceFailed, match="8 bytes of arguments, copy takes 12"):
        device.sync()


FAULTS = {
    "assert": ("assert(threadIdx.x != 3);", 710, "device-side assert triggered", "assertion `threadIdx.x != 3` failed"),
    "trap": ("if (threadIdx.x == 3) __trap();", 719, "unspecified launch failure", "__trap() in line 2"),
    "null": (
        "if (threadIdx.x == 3) *(float*)nullptr = 1;",
        700,
        "an illegal memory access was encountered",
        "null pointer",
    ),
    "wild": (
        "if (threadIdx.x == 3) out[1 << 30] = 1;",
        700,
        "an illegal memory access was encountered",
        "past the end",
    ),
    "misaligned": (
        "if (threadIdx.x == 3) *(float4*)(out + 1) = make_float4(1, 2, 3, 4);",
        716,
        "misaligned address",
        "multiple of the vector's size",
    ),
    "division": ("out[0] = 7 / (3 - (int)threadIdx.x);", 719, "unspecified launch failure", "division by zero"),
    "recursion": ("out[0] = deep(threadIdx.x);", 719, "unspecified launch failure", "recursion too deep"),
    "deadlock": (
        "if (threadIdx.x < 8) __syncthreads();\n else __syncwarp();",
        719,
        "unspecified launch failure",
        "8 wait at __syncthreads in line 2, the first is thread (0,0,0); 24 wait at __syncwarp in line 3, the first is",
    ),
    "mask": ("if (threadIdx.x == 3) __syncwarp(1);", 719, "unspecified launch failure", "does not name the lane"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_errors_end_the_launch_and_last(own_device: DeviceClient, name: str) -> None:
    statement, code, text, detail = FAULTS[name]
    deep = "__device__ int deep(int n) { volatile char row[4096]; row[n] = n; return deep(n + 1) + row[n]; }"
    source = f"""{deep} extern "C" __global__ void fail(float* out) {{
        {statement}
        out[5] = 1;
    }}"""
    error = error_of(own_device, source, "fail", own_device.empty(1000))
    assert (error["code"], error["text"]) == (code, text)
    assert "kernel fail, block (0,0,0)" in str(error["detail"])
    assert detail in str(error["detail"])
    if name not in ("deadlock", "recursion"):
        assert "thread (3,0,0)" in str(error["detail"])
    assert own_device.ask("sync")["error"] == error


def test_a_crash_in_a_library_function_is_told_to_the_parent(own_device: DeviceClient) -> None:
    kernels = own_device.compile("""
    extern "C" __global__ void crash(float* out, int n) { memset(out + (1l << 30), 0, n); }""")
    with pytest.raises((EOFError, BrokenPipeError)):
        kernels("crash", own_device.empty(1), 100000)
    crash = receive_frame(own_device.control_socket, 4096, 0)[0]["crash"]
    assert crash.startswith("kernel crash: access outside of all allocations (address 0x")


def test_static_shared_memory_beyond_48_kb_does_not_compile(device: DeviceClient) -> None:
    with pytest.raises(CompileFailed, match="uses too much shared data"):
        device.compile("""extern "C" __global__ void f(float* out) {
            __shared__ float rows[12289];
            rows[threadIdx.x] = 1;
            __syncthreads();
            *out = rows[5];
        }""")
