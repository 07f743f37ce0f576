"""What a program and the owner of the device process see when a kernel goes wrong or the process dies."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from grader import KIT
from grader.checking.api import Failure, Out, Worker
from grader.emulator.compiler import toolchain
from grader.emulator.launcher import DeviceError, DeviceProcess, start_device
from grader.ipc.framing import send_frame
from grader.worker.connection import Deadlines
from tests.emulator.conftest import CLIENT, Program
from tests.submissions import write_engine

START = """
import gc, sys
import numpy as np, pycuda.autoinit, pycuda.driver as drv, pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

def attempt(call):
    try:
        call()
        print("fine", flush=True)
    except drv.Error as error:
        print(f"{type(error).__name__}: {error}", flush=True)

def kernel(body):
    source = 'extern "C" __global__ void k(float* out, int n) { int i = threadIdx.x; ' + body + " }"
    return SourceModule(source, no_extern_c=True).get_function("k")

out = gpuarray.zeros(64, np.float32)
call = lambda body: kernel(body)(out, np.int32(1 << 28), block=(32, 1, 1))
"""
STOPPED = "LogicError: cuCtxSynchronize failed: the emulated GPU stopped - "


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("if (i == 3) out[n] = 1;", "LogicError: cuCtxSynchronize failed: an illegal memory access was encountered - "),
        ("*(float4*)(out + 1) = float4();", "LogicError: cuCtxSynchronize failed: misaligned address - "),
        ("assert(i != 3);", "LogicError: cuCtxSynchronize failed: device-side assert triggered - "),
        ("if (i == 3) __trap();", "LaunchError: cuCtxSynchronize failed: unspecified launch failure - "),
    ],
    ids=["wild", "misaligned", "assert", "trap"],
)
def test_error_comes_with_the_next_synchronisation_and_stays(body: str, error: str, program: Program) -> None:
    result = program(
        START + f"attempt(lambda: call({body!r}))\n"
        "attempt(drv.Context.synchronize)\n"
        "attempt(lambda: drv.mem_alloc(4))\n"
        "attempt(lambda: drv.memcpy_htod(out.gpudata, np.zeros(4)))\n"
        "attempt(lambda: call('out[i] = 1;'))\n"
        "attempt(drv.Event)\n"
        "del out\n"
    )
    lines = result.stdout.splitlines()
    assert lines[0] == "fine"  # the launch itself returns
    assert lines[1].startswith(error)
    assert "kernel k, block (0,0,0), thread (" in lines[1]
    reason = lines[1].partition(" failed: ")[2]
    functions = [line.partition(" failed: ") for line in lines[2:]]
    kind = error.partition(":")[0]
    assert [name for name, _, _ in functions] == [
        f"{kind}: {function}" for function in ("cuMemAlloc", "cuMemcpyHtoD", "cuModuleLoadDataEx", "cuEventCreate")
    ]
    assert {text for _, _, text in functions} == {reason}
    warning = f"PyCUDA WARNING: a clean-up operation failed (dead context maybe?)\ncuMemFree failed: {reason}"
    assert result.stderr.startswith(warning)
    assert result.returncode == 0


def test_copies_and_events_synchronise(program: Program) -> None:
    """The first of these calls after a bad kernel reports it, under its own name."""
    calls = {
        "out.get()": "cuMemcpyDtoH",
        "drv.Stream().synchronize()": "cuStreamSynchronize",
        "drv.Event().record().synchronize()": "cuEventSynchronize",
        "out.set(np.zeros(64, np.float32))": "cuMemcpyHtoD",
    }
    for source, function in calls.items():
        result = program(START + f"call('if (i == 3) out[n] = 1;')\nattempt(lambda: {source})")
        assert result.stdout.startswith(f"LogicError: {function} failed: an illegal memory access was encountered")


def test_kernel_that_crashes_the_device_process(program: Program) -> None:
    result = program(
        START + "call('memset(out + (1l << 30), 0, 100000);')\n"
        "attempt(drv.Context.synchronize)\nattempt(drv.Context.synchronize)\nattempt(lambda: drv.mem_alloc(4))"
    )
    first, second, third = result.stdout.splitlines()
    assert first.startswith(f"{STOPPED}kernel k: access outside of all allocations (address 0x")
    assert second == first
    assert third == first.replace("cuCtxSynchronize", "cuMemAlloc")
    assert "Traceback" not in result.stderr


def test_program_ends_while_a_kernel_hangs(program: Program) -> None:
    """The device process that the program started does not outlive it."""
    start = time.monotonic()
    result = program(START + "call('while (((volatile float*)out)[i] == 0) {}')\nprint('launched')")
    assert result.stdout == "launched\n"
    assert result.returncode == 0
    assert time.monotonic() - start < 20


def test_device_process_ends_with_a_program_that_is_killed(program: Program) -> None:
    source = (
        "import os\ncall('while (((volatile float*)out)[i] == 0) {}')\n"
        "print(drv._connection._connection._own.process.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    number = int(program(START + source).stdout)
    deadline = time.monotonic() + 5
    while _is_running(number) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(number)


def _is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{number}/stat").exists() or ") Z " not in Path(f"/proc/{number}/stat").read_text()


def test_flood_of_printf_reaches_the_terminal_and_ends(program: Program) -> None:
    result = program(START + "call('for (int j = 0; j < 3000; ++j) printf(\"%d line\\\\n\", i);')\nattempt(out.get)")
    assert result.stdout.endswith("fine\n")
    assert result.stdout.count("0 line\n") >= 3000


# A device process that somebody else than its user owns, as the grader does


@pytest.fixture
def device() -> Iterator[DeviceProcess]:
    process = start_device(cores=1)
    yield process
    process.kill()


def start_program(device: DeviceProcess, source: str, folder: Path) -> "subprocess.Popen[str]":
    script = folder / "program.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(CLIENT)!r})\n{START}{source}")
    return subprocess.Popen(
        [sys.executable, "-B", str(script)],
        env=os.environ | device.environment(),
        pass_fds=device.pass_fds,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_owner_ends_a_kernel_that_hangs(device: DeviceProcess, tmp_path: Path) -> None:
    source = "call('while (((volatile float*)out)[i] == 0) {}')\nprint('launched', flush=True)\n"
    user = start_program(device, source + "attempt(drv.Context.synchronize)\ndel out", tmp_path)
    assert user.stdout is not None
    assert user.stdout.readline() == "launched\n"
    device.kill()
    output, errors = user.communicate(timeout=20)
    assert output == f"{STOPPED}a kernel crashed it, or it was ended\n"
    assert errors.startswith("PyCUDA WARNING: a clean-up operation failed (dead context maybe?)\ncuMemFree failed: the")
    assert user.returncode == 0
    assert device.control.crash_report() is None


def test_device_process_dies_between_calls(device: DeviceProcess, tmp_path: Path) -> None:
    source = "import time\nprint('ready', flush=True)\ntime.sleep(0.5)\nattempt(lambda: out.fill(1))\nattempt(out.get)"
    user = start_program(device, source, tmp_path)
    assert user.stdout is not None
    assert user.stdout.readline() == "ready\n"
    os.kill(device.process.pid, signal.SIGKILL)
    output, _ = user.communicate(timeout=20)
    assert "cuMemcpyDtoH failed: the emulated GPU stopped" in output.splitlines()[-1]
    with pytest.raises(DeviceError):
        device.control.observed()


def test_owner_reads_where_a_kernel_crashed(device: DeviceProcess, tmp_path: Path) -> None:
    assert device.control.crash_report() is None
    source = "call('memset(out + (1l << 30), 0, 100000);')\nattempt(drv.Context.synchronize)"
    output, _ = start_program(device, source, tmp_path).communicate(timeout=20)
    assert output.startswith(STOPPED)
    report = device.control.crash_report()
    assert report is not None
    assert report.startswith("kernel k: access outside of all allocations (address 0x")
    assert device.control.crash_report() == report
    with pytest.raises(DeviceError):
        device.control.observe(counted=True)


def test_owner_keeps_the_first_lines_of_a_flood(device: DeviceProcess, tmp_path: Path) -> None:
    source = "call('for (int j = 0; j < 3000; ++j) printf(\"%d line\\\\n\", i);')\nattempt(out.get)"
    output, _ = start_program(device, source, tmp_path).communicate(timeout=30)
    assert output == "fine\n"
    first, left_out, last = re.split(r"^… (\d+) more lines\n", device.printed(), flags=re.MULTILINE)
    assert set(kept := (first + last).splitlines()) <= {f"{i} line" for i in range(32)}
    assert int(left_out) + len(kept) == 32 * 3000
    device.forget_printed()
    assert device.printed() == ""


def test_control_reaches_the_launches_of_the_user(device: DeviceProcess, tmp_path: Path) -> None:
    device.control.set_mode(empty=True)
    source = "out.fill(2)\ncall('out[i] = 5;')\nprint(out.get()[0], flush=True)"
    output, _ = start_program(device, source, tmp_path).communicate(timeout=20)
    assert output == "2.0\n"
    assert device.control.observed()["launches"] == {"k": 1}


def test_machine_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    device = start_device()
    _, errors = start_program(device, "", tmp_path).communicate(timeout=20)
    device.kill()
    assert "RuntimeError: cuInit failed: no CUDA-capable device is detected - no C++ compiler was found: " in errors
    assert device.printed() == ""


def test_capacity_is_what_the_owner_gave(tmp_path: Path) -> None:
    small = start_device(cores=1, capacity=1 << 20)
    source = "print(drv.mem_get_info()[1], flush=True)\nattempt(lambda: drv.mem_alloc(1 << 20))"
    output, _ = start_program(small, source, tmp_path).communicate(timeout=20)
    small.kill()
    total, error = output.splitlines()
    assert int(total) == 1 << 20
    assert error.startswith("MemoryError: cuMemAlloc failed: out of memory")


# Kernels that go wrong in every way, as the grader's worker reports them

DEEP = """
static __device__ __noinline__ int deep(int depth) {
    volatile int number = depth;
    return deep(depth + 1) + number;
}
"""
TOO_DEEP = "local arrays are too large, or recursion too deep"


@pytest.mark.parametrize(
    ("body", "verdict", "told"),
    [
        ("while (n) ((volatile float*)out)[0] = 1;", "TIMEOUT", "did not return within"),
        ('while (n) printf("%d\\n", i);', "TIMEOUT", "did not return within"),
        ("if (i < n) out[i] = deep(i);", "CRASHED", TOO_DEEP),
        ("volatile float local[100000]; local[i] = 1; if (i < n) out[i] = local[99999 - i];", "CRASHED", TOO_DEEP),
        ("volatile char local[n]; local[i] = 1; if (i < n) out[i] = local[0];", "COMPILE_ERROR", "variable length"),
        ("exit(0);", "COMPILE_ERROR", "exit is called, but no device function"),
        ("abort();", "COMPILE_ERROR", "abort is called, but no device function"),
        ("__trap();", "CRASHED", "__trap() in line 10"),
        ("assert(i < 5);", "RUNTIME_ERROR", "vector_add.cu:10: assertion `i < 5` failed"),
        ("if (i < n) out[i] = 7 / (n - 300);", "CRASHED", "integer division by zero"),
        ("throw 1;", "COMPILE_ERROR", "exception"),
        ("*(volatile float*)nullptr = 1;", "OUT_OF_BOUNDS", "address 0x0"),
        ("if (i < n) out[i] = ((volatile float*)nullptr)[i];", "OUT_OF_BOUNDS", "address 0x0"),
        ("*(volatile float*)0x100000000000 = 1;", "OUT_OF_BOUNDS", "0x100000000000"),
        ("*(volatile float*)0xdeadbeefdeadbeef = 1;", "OUT_OF_BOUNDS", "0xdeadbeefdeadbeef"),
        ("if (i < n) out[i] = ((volatile float*)0xdeadbeefdeadbe00)[i];", "OUT_OF_BOUNDS", "0xdeadbeefdeadbe00"),
        ("volatile long far = 1l << 61; out[far] = 1;", "OUT_OF_BOUNDS", ""),
        ("*(float4*)(out + 1) = make_float4(1, 2, 3, 4);", "MISALIGNED_ACCESS", ""),
        ("void (*volatile function)(int) = nullptr; function(i);", "COMPILE_ERROR", "pointers to functions"),
        ("memset(out + (1l << 33), 0, 100000);", "OUT_OF_BOUNDS", ""),
    ],
)
def test_bad_kernel_gets_its_verdict(body: str, verdict: str, told: str, tmp_path: Path) -> None:
    deadlines = Deadlines()
    deadlines.start(60)
    deadlines.call_seconds = 3 if verdict == "TIMEOUT" else 30
    engine = write_engine(tmp_path, body)
    file = engine / "kernels/vector_add.cu"
    file.write_text(DEEP + file.read_text())
    x = np.arange(300, dtype=np.float32)
    worker = Worker(engine, deadlines, emulated=True)
    with pytest.raises(Failure) as caught:
        worker.launch("vector_add", Out(300, np.float32), x, x)
    worker.end()
    assert (caught.value.verdict, told in caught.value.message) == (verdict, True), caught.value.message


OWNER = """
import sys
from pathlib import Path
import numpy as np
from grader.checking.api import Out, Worker
from grader.worker.connection import Deadlines

deadlines = Deadlines()
deadlines.start(600)
worker = Worker(Path(sys.argv[1]), deadlines, emulated=True)
for connection in worker._kernels, worker._host:
    child = connection._started()
    print(child.process.pid, child.device.process.pid, flush=True)
x = np.zeros(300, np.float32)
{hang}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="macOS ends only the device process")
@pytest.mark.parametrize("hang", ["worker.launch('vector_add', Out(300, np.float32), x, x)", "worker.call('toy.hang')"])
def test_nothing_outlives_a_grader_that_is_killed(hang: str, tmp_path: Path) -> None:
    """Neither a kernel that never ends nor a loop of Python's that never looks up."""
    engine = write_engine(
        tmp_path, "while (n) ((volatile float*)out)[0] = 1;", toy="def hang():\n    sum(iter(int, 1))\n"
    )
    command = [sys.executable, "-c", OWNER.format(hang=hang), str(engine)]
    owner = subprocess.Popen(command, cwd=KIT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    numbers = [int(number) for _ in range(2) for number in owner.stdout.readline().split()]
    time.sleep(1)  # now in the middle of it
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 10
    while any(map(_is_running, numbers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(numbers) == 4
    assert not [number for number in numbers if _is_running(number)]


def test_compilation_that_is_killed_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, slow = tmp_path / "cache", tmp_path / "slow"
    cache.mkdir()
    shutil.copy(toolchain.runtime_library(), cache)
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *cuda_runtime.h*" -o "*) sleep 60;; esac\nexec {toolchain.compiler()} "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    monkeypatch.setenv("PAGEDLAB_CACHE", str(cache))
    monkeypatch.setattr(toolchain, "CACHE", cache)
    device = start_device(cores=1)
    send_frame(device.channel, {"verb": "compile", "source": "", "options": [], "include_dirs": []})
    deadline = time.monotonic() + 10
    while not list(cache.glob("unfinished-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(cache.glob("unfinished-*"))
    device.kill()
    assert not list(cache.glob("unfinished-*"))
