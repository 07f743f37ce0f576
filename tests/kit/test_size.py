"""Files and functions stay so short that one reads them whole."""

import pytest

from grader import KIT
from tests.kit.sizes import PYTHON, C, functions, source_files

LONGEST_FILE = 400
LONGEST_FUNCTION = 60

AS_OTHERS_WRITE = ("tests/alternatives/", "tests/conformance/")
"""Kernels that stand for those of students and of well-known libraries are as long as these write them."""

PROGRAM = """\
#include <cstdio>  // {
#define OPEN {
#define LOOP(n) \\
    for (int i = 0; i < n; ++i) {

namespace kit {
struct alignas(4) Pair : Base<int> {
    enum Kind { ONE, TWO };  /* } */
    Pair() : first{1}, second{2} {}
    int sum() const {
        const char brace = '{';
        return first + second + digits(1'000, "}\\"{", R"({)");
    }
    int first, second;
};
constexpr int TABLE[] = {1, 2};
}  // namespace kit

template <int N>
extern "C" __global__ void __launch_bounds__(128)
    kernel(float* out,
           int n) {
    if (n) {
        auto square = [](float x) { return x * x; };
    }
}
"""


def test_no_file_is_long() -> None:
    lengths = {name: len((KIT / name).read_text().splitlines()) for name in source_files(*PYTHON, *C)}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


@pytest.mark.parametrize("endings", [PYTHON, C], ids=["Python", "C++ and CUDA"])
def test_no_function_is_long(endings: tuple[str, ...]) -> None:
    files = {name: functions(name, (KIT / name).read_text()) for name in source_files(*endings)}
    assert sum(map(len, files.values())) > 500
    long = {
        f"{name}:{function.name}"
        for name, found in files.items()
        for function in found
        if function.lines > LONGEST_FUNCTION and not (name.endswith(C) and name.startswith(AS_OTHERS_WRITE))
    }
    assert long == set()


def test_functions_of_cpp_are_found() -> None:
    assert [tuple(function) for function in functions("a.cu", PROGRAM)] == [
        (9, "Pair", 1), (10, "sum", 4), (19, "kernel", 8),
    ]  # fmt: skip


def test_functions_of_python_are_found() -> None:
    text = "def f():\n    def g():\n        pass\n\n\nclass A:\n    async def h(\n        self,\n    ): ...\n"
    found = sorted(tuple(function) for function in functions("a.py", text))
    assert found == [(1, "f", 3), (2, "g", 2), (7, "h", 3)]
