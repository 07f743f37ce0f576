"""Sources and kernels that ask for more than there is: of time, of memory, of room for reports."""

import struct
import subprocess
import sys

import numpy as np
import pytest

from grader.emulator.compiler.limits import limited
from grader.emulator.compiler.toolchain import CompileError, compile_module
from tests.emulator.device_client import start_device


def test_many_remarks_hide_no_error() -> None:
    barriers = "__syncthreads();\n" * 70
    source = f"""
    extern "C" __global__ void f(int* out) {{
        __shared__ int tile[64];
        if (threadIdx.x == 63) return;
        {barriers}
        tile[threadIdx.x] = threadIdx.x;
        out[threadIdx.x] = tile[62 - threadIdx.x];
    }}"""
    with start_device() as device:
        kernels = device.compile(source)
        device.control("observe", counted=False, checked=True)
        pointer = device.pointers[id(device.array(np.zeros(64, np.int32)))]
        device.launch(kernels.answer["module"], "f", struct.pack("Q", pointer), [1], [64])
        device.sync()
        reports = device.control("observed")["reports"]
    assert {report["verdict"] for report in reports if report["is_error"]} >= {"DATA_RACE"}
    assert any(not report["is_error"] for report in reports)


def test_processes_of_a_compiler_end_by_themselves() -> None:
    endless = ["/bin/sh", "-c", "/bin/sh -c 'while :; do :; done'; exit $?"]
    assert subprocess.run(limited(endless, seconds=1), capture_output=True).returncode != 0


@pytest.mark.skipif(sys.platform != "linux", reason="macOS limits no process's memory")
def test_compiler_gets_no_more_memory() -> None:
    """A header such as /dev/zero has no end, and the compiler reads all of it first."""
    greedy = [sys.executable, "-c", "bytearray(1 << 30)"]
    assert subprocess.run(limited(greedy, memory=1 << 31), capture_output=True).returncode == 0
    assert subprocess.run(limited(greedy, memory=1 << 29), capture_output=True).returncode != 0


def test_source_that_is_no_text_is_refused() -> None:
    with pytest.raises(CompileError, match="no text"):
        compile_module("// \udc80", [], [], instrumented=False)
