"""`python -m grader run`: scripts as they are, what comes back, the checks' reports, kernels under gdb."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grader import KIT
from grader.emulator import toolchain
from tests.tools import interrupts_enabled

Run = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = [sys.executable, "-m", "grader", "run"]
START = """import sys
import numpy as np, pycuda.autoinit, pycuda.driver as cuda, pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule
"""
REVERSE = (
    START
    + '''
reverse = SourceModule("""
__global__ void reverse(float* out, const float* x)
{
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    BARRIER
    out[i] = tile[63 - i];
}
""").get_function("reverse")
x = gpuarray.to_gpu(np.arange(64, dtype=np.float32))
out = gpuarray.zeros(64, np.float32)
reverse(out, x, block=(64, 1, 1))
print(*(position for position, value in enumerate(out.get()) if np.isnan(value)))
'''
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a script: its text, its arguments, the command's options, changes of the environment, standard input."""

    def start(
        text: str, *arguments: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None, answers: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        script = tmp_path / "script.py"
        script.write_text(text)
        command = [*COMMAND, *options, str(script), *arguments]
        environment = os.environ | (env or {})
        return subprocess.run(
            command, cwd=KIT, env=environment, input=answers, capture_output=True, text=True, timeout=60
        )

    return start


def test_arguments_input_output_and_exit_code_are_the_scripts(run: Run) -> None:
    text = START + "print(sys.argv[1:], input(), __name__)\nprint('told', file=sys.stderr)\nsys.exit(7)"
    result = run(text, "--check", "a b", answers="typed\n")
    assert (result.stdout, result.stderr, result.returncode) == ("['--check', 'a b'] typed __main__\n", "told\n", 7)


def test_the_emulated_pycuda_is_taken_where_the_genuine_one_is_installed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "site/pycuda").mkdir(parents=True)
    (tmp_path / "site/pycuda/__init__.py").write_text("raise SystemExit('the genuine one')")
    result = run(START + "print(cuda.Device(0).name())", env={"PYTHONPATH": str(tmp_path / "site")})
    assert (result.stdout, result.returncode) == ("PagedLab emulated GPU\n", 0)


def test_what_kernels_print_comes_in_its_place(run: Run) -> None:
    kernel = 'SourceModule("__global__ void k(int n) { printf(\\"kernel %d\\\\n\\", n); }").get_function("k")'
    text = f"{START}k = {kernel}\nprint('first')\nk(np.int32(1), block=(1, 1, 1))\ncuda.Context.synchronize()\n"
    result = run(text + "print('then')\nk(np.int32(2), block=(1, 1, 1))")
    assert result.stdout == "first\nkernel 1\nthen\nkernel 2\n"


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("pycuda.curandom", "pycuda.curandom is not emulated: it needs PyCUDA itself and a GPU"),
        ("pycuda.nonsense", "No module named 'pycuda.nonsense'"),
    ],
)
def test_what_needs_a_gpu_is_named(module: str, told: str, run: Run) -> None:
    result = run(f"import {module}")
    assert result.returncode == 1
    assert told in result.stderr.splitlines()[-1]


def test_wrong_usage_is_2(run: Run, tmp_path: Path) -> None:
    def told(result: "subprocess.CompletedProcess[str]") -> str:
        assert result.returncode == 2
        assert result.stderr.count("\n") == 1
        return result.stderr

    absent = subprocess.run([*COMMAND, "absent.py"], cwd=KIT, capture_output=True, text=True)
    assert told(absent) == "PagedLab: there is no script absent.py.\n"
    assert "no C++ compiler was found" in told(run(START, env={"PATH": str(tmp_path), "CXX": ""}))
    only_compiler = {"PATH": str(tmp_path), "CXX": toolchain.compiler()}
    assert "--debug needs gdb" in told(run(START, options=("--debug", "k"), env=only_compiler))


@pytest.mark.parametrize(("seed", "wrong"), [(0, range(32)), (1, range(32, 64))])
def test_seed_orders_the_threads(seed: int, wrong: range, run: Run) -> None:
    """Without a barrier, the half of the threads that comes first reads what the other half has yet to write."""
    result = run(REVERSE.replace("BARRIER", ""), options=("--seed", str(seed)))
    assert result.stdout.split() == [str(position) for position in wrong]


def test_check_reports_and_fails(run: Run) -> None:
    result = run(REVERSE.replace("BARRIER", "") + "sys.exit(int(sys.argv[1]))", "0", options=("--check",))
    assert result.returncode == 1
    assert "DATA_RACE in kernel reverse" in result.stderr
    assert "     6 | tile[i] = x[i];\n     8 | out[i] = tile[63 - i];\n" in result.stderr
    assert "put __syncthreads() between the two" in " ".join(result.stderr.split())
    assert "PagedLab: the checks found" in result.stderr.splitlines()[-1]
    result = run(REVERSE.replace("BARRIER", "") + "sys.exit(int(sys.argv[1]))", "5", options=("--check",))
    assert (result.returncode, "DATA_RACE in kernel reverse" in result.stderr) == (5, True)


def test_check_of_a_right_script_is_content(run: Run) -> None:
    result = run(REVERSE.replace("BARRIER", "__syncthreads();"), options=("--check",))
    assert (result.stdout, result.returncode) == ("\n", 0)
    assert result.stderr.strip() == "PagedLab: the checks found 0 errors, 0 remarks"
    assert run(START + "sys.exit(5)", options=("--check",)).returncode == 5


ASSERTS = 'SourceModule("__global__ void k(int n) { assert(n == 2); }").get_function("k")(np.int32(1), block=(1, 1, 1))'


def test_a_failed_assertion_is_no_success_of_the_checks(run: Run) -> None:
    result = run(f"{START}{ASSERTS}\ncuda.Context.synchronize()", options=("--check",))
    assert result.returncode == 1
    assert "PagedLab: the checks found 0 errors, 0 remarks before the script failed" in result.stderr
    assert "assertion `n == 2` failed" in result.stderr
    assert result.stderr.count("  File ") == 1


@pytest.mark.parametrize(("option", "code"), [("", 1), (", no_extern_c=True", 0)])
def test_headers_of_cpp_want_no_extern_c(option: str, code: int, run: Run) -> None:
    result = run(f'{START}SourceModule("""#include <cuda_bf16.h>\nextern "C" __global__ void k() {{}}"""{option})')
    assert result.returncode == code
    assert ("call SourceModule(source, no_extern_c=True)" in result.stderr) == bool(code)


def printing(arguments: str) -> str:
    """A script whose kernel prints these."""
    kernel = f"""__global__ void k(float x) {{ printf({arguments}); }}"""
    return f"{START}SourceModule(r'''{kernel}''').get_function('k')(np.float32(2), block=(1, 1, 1))"


def test_formats_that_do_not_fit_are_told(run: Run) -> None:
    result = run(printing(r'"%d\n", x'))
    assert result.returncode == 0
    assert "kernel.cu:1:" in result.stderr
    assert "warning: format" in result.stderr
    assert run(printing(r'"%.1f\n", x')).stderr == ""


@pytest.mark.parametrize("arguments", ['"%s"', '"%s", 1', '"%d %d", 1'])
def test_formats_that_read_what_is_not_there_do_not_compile(arguments: str, run: Run) -> None:
    result = run(printing(arguments))
    assert result.returncode == 1
    assert "kernel.cu:1:" in result.stderr
    assert "error: " in result.stderr
    assert "emulated GPU stopped" not in result.stderr


def test_ctrl_c_ends_the_script_and_its_kernels(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    kernel = 'SourceModule("__global__ void k(volatile int* p) { while (*p) {} }").get_function("k")'
    script.write_text(
        f"{START}p = gpuarray.to_gpu(np.ones(1, np.int32))\n{kernel}(p, block=(1, 1, 1))\nprint('begun')\np.get()"
    )
    with interrupts_enabled():
        process = subprocess.Popen(
            [*COMMAND, str(script)],
            cwd=KIT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=20)  # until the device process has closed its output as well
    assert process.returncode == 130
    assert errors.count("Traceback") <= 1
    assert "grader/run.py" not in errors


def can_debug() -> bool:
    """Whether gdb is here, may attach to a process, and knows threadIdx, of which clang++ tells it nothing."""
    gdb = shutil.which("gdb")
    if gdb is None or "clang" in toolchain.compiler():
        return False
    with subprocess.Popen(["sleep", "20"]) as victim:
        result = subprocess.run([gdb, "-nx", "-batch", "-p", str(victim.pid)], capture_output=True, text=True)
        victim.kill()
    return "ptrace" not in result.stderr


@pytest.mark.skipif(not can_debug(), reason="gdb is not here, or of no use here")
def test_debugger_stops_kernels_and_reads_them(run: Run) -> None:
    text = REVERSE.replace("BARRIER", "__syncthreads();")
    answers = "print threadIdx\nprint tile[3]\nnext\nprint tile[60]\nprint i\ndelete\ncontinue\n"
    result = run(text, options=("--debug", "kernel.cu:7 if threadIdx.x == 3"), answers=answers)
    assert result.returncode == 0
    assert "at kernel.cu:7\n7\t    __syncthreads();" in result.stdout
    for told in ("$1 = {x = 3, y = 0, z = 0}", "$2 = 3\n", "8\t    out[i] = tile[63 - i];", "$3 = 60\n", "$4 = 3\n"):
        assert told in result.stdout
    assert "exited normally" in result.stdout


@pytest.mark.skipif(not can_debug(), reason="gdb is not here, or of no use here")
def test_debugger_stops_in_the_last_block(run: Run) -> None:
    """Although the kernel itself uses neither the block's number nor any extent."""
    text = REVERSE.replace("BARRIER", "").replace("block=(64, 1, 1)", "block=(64, 1, 1), grid=(3, 1)")
    answers = "print threadIdx.x\nprint blockIdx.x\nprint blockDim\nprint gridDim.x\ndelete\ncontinue\n"
    result = run(text, options=("--debug", "kernel.cu:6 if blockIdx.x == 2"), answers=answers)
    for told in ("$1 = 0\n", "$2 = 2\n", "$3 = {x = 64, y = 1, z = 1}\n", "$4 = 3\n"):
        assert told in result.stdout


@pytest.mark.skipif(not can_debug(), reason="gdb is not here, or of no use here")
@pytest.mark.parametrize("where", ["absent", "kernel.cu:99", "reverse if threadIdx.x == 64"])
def test_debugger_that_never_stopped_says_so(where: str, run: Run) -> None:
    result = run(REVERSE.replace("BARRIER", ""), options=("--debug", where))
    assert f"PagedLab: no thread stopped at {where}. Compiled kernels:\n  reverse\n" in result.stdout
