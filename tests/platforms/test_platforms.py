"""Other compilers, processors and object files: clang++ beside g++, arm64 under qemu, Mach-O."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import KIT
from grader.emulator.arena import Arena
from grader.emulator.compiler import toolchain
from grader.emulator.compiler.headers import HEADERS
from grader.emulator.compiler.object_file import CODE, THREAD_LOCAL, read_object
from tests.tools import not_run, require_tool

ARM64 = Path(__file__).parent / "aarch64"
UNDER_CLANG = ("tests/emulator/test_counters.py", "tests/bugs/test_bugs.py")
STAGES = ("0", "3", "5")


@pytest.fixture(scope="module")
def clang() -> str:
    """A clang++, whatever its name."""
    names = ["clang++", *(f"clang++-{version}" for version in range(30, 13, -1))]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        not_run("clang++", "install clang")
    return str(found)


def under(compiler: str, *command: str) -> None:
    """Run a Python module with another compiler; what it printed is the failure's text."""
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=KIT,
        env=os.environ | {"CXX": compiler},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("file", UNDER_CLANG)
def test_emulator_compiled_by_clang(clang: str, file: str) -> None:
    under(clang, "pytest", "-q", "--no-header", "-p", "no:cacheprovider", file)


def test_solutions_compiled_by_clang(clang: str) -> None:
    under(clang, "grader", "grade", "solutions", "--device", "cpu", "--stage", *STAGES)


# arm64


@pytest.fixture
def cross_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A compiler for arm64, which the toolchain takes for this machine's."""
    compiler = require_tool("aarch64-linux-gnu-g++", "install g++-aarch64-linux-gnu")
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    cached = [function for function in vars(toolchain).values() if hasattr(function, "cache_clear")]
    for function in cached:
        function.cache_clear()
    yield compiler
    monkeypatch.undo()
    for function in cached:
        function.cache_clear()


def test_kernels_on_arm64(cross_compiler: str, tmp_path: Path) -> None:
    """A program for arm64 launches kernels in both builds: results, faults, counters and checks."""
    qemu = require_tool("qemu-aarch64", "install qemu-user")
    source = (ARM64 / "kernels.cu").read_text()
    facts: list[str] = []
    for instrumented in (False, True):
        module = toolchain.compile_module(source, [], [], instrumented=instrumented)
        begin, size, _ = module.shared_variables["_ZZ6flawedE4tile"]
        numbers = [module.reference, *module.code, module.image_bytes, module.shared_anchor, module.shared_bytes]
        facts += [str(module.path), *map(str, [*numbers, begin, size])]
    runtime, driver = toolchain.runtime_library(), tmp_path / "driver"
    headers = [f"-I{HEADERS}", f"-I{toolchain.RUNTIME}"]
    linked = [str(runtime), f"-Wl,-rpath,{runtime.parent}", "-ldl"]
    command = [
        cross_compiler,
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        *headers,
        str(ARM64 / "driver.cpp"),
        *linked,
    ]
    subprocess.run([*command, "-o", str(driver)], check=True)
    root = Path(cross_compiler).resolve().parents[1] / "aarch64-linux-gnu"
    result = subprocess.run([qemu, "-L", str(root), str(driver), *facts], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(result.stdout.splitlines()) == 37


# macOS

VARIABLES = """
#define GLOBAL __attribute__((section("__DATA,pagedlab_globals"), used))
#define SHARED static thread_local __attribute__((used))
GLOBAL float table[4] = {1, 2, 3, 4};
GLOBAL int calls;
template <int N> float* rows() { SHARED float kept[N]; return kept; }
extern "C" int elsewhere(float*);
extern "C" float f(int i) {
    SHARED double pair[2];
    SHARED float tile[4][33];
    SHARED float initial[3] = {1, 2, 3};
    return table[i] + pair[i] + tile[i][i] + initial[i] + elsewhere(rows<10>());
}"""


@pytest.mark.parametrize("target", ["arm64-apple-macos13", "x86_64-apple-macos13"])
def test_variables_are_found_in_object_files_of_macos(clang: str, tmp_path: Path, target: str) -> None:
    file = tmp_path / "object.o"
    command = [clang, "-target", target, "-std=c++17", "-fPIC", "-O1", "-c", "-x", "c++", "-", "-o", str(file)]
    subprocess.run(command, input=VARIABLES, text=True, check=True)
    found = read_object(file.read_bytes())
    symbols = {symbol.name: symbol for symbol in found.symbols}
    assert symbols["f"].section == CODE
    assert "elsewhere" in found.undefined
    assert (symbols["table"].section, symbols["table"].size, symbols["calls"].size) == ("pagedlab_globals", 16, 4)
    assert found.sections["pagedlab_globals"] == (symbols["table"].address, 20)
    shared = {symbol.name: symbol for symbol in found.symbols if symbol.section == THREAD_LOCAL}
    sizes = {"_ZZ1fE4pair": 16, "_ZZ1fE4tile": 528, "_ZZ1fE7initial": 12, "_ZZ4rowsILi10EEPfvE4kept": 40}
    begins = sorted(shared[name].address for name in sizes)
    assert begins[0] == 0
    for name, size in sizes.items():
        following = [begin for begin in begins if begin > shared[name].address]
        assert shared[name].address + size <= min(following, default=shared[name].address + size)
        assert size <= shared[name].size < size + 16


def test_written_bytes_are_found_where_no_holes_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The device's memory on systems other than Linux."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with (tmp_path / "memory").open("w+b") as file:
        file.truncate(4 << 30)
        arena = Arena(file.fileno(), 4 << 30, 1 << 30)
        begin = arena.allocate(4 << 20)
        assert begin is not None
        arena.fill(begin, b"\0", 4 << 20)
        assert arena.first_written(begin, 4 << 20, []) is None
        arena.fill(begin + (3 << 20), b"\7", 1)
        assert arena.first_written(begin, 4 << 20, []) == 3 << 20
        assert arena.first_written(begin, 4 << 20, [(3 << 20, (3 << 20) + 1)]) is None
        arena.free(begin)
        assert arena.used == 0
