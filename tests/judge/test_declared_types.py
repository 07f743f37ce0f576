"""Pointers of another type than the contract passes are named; those that are right, or may be, are not."""

import pytest
from given.contracts import CONTRACTS

from grader import KIT
from grader.judge.declared_types import misdeclared

KERNEL = 'extern "C" __global__ void rmsnorm({}, const __nv_bfloat16* __restrict__ x, {}, int T, int H, float eps) {{'


def told(out: str, weight: str) -> str:
    return misdeclared(KERNEL.format(out, weight), CONTRACTS["rmsnorm"])


def test_both_types_are_named() -> None:
    assert told("__nv_bfloat16* out", "const float* __restrict__ weight /* , */") == (
        "rmsnorm declares float * for weight (parameter #2, from 0), but its elements are __nv_bfloat16, of 2 bytes: "
        "declare it as __nv_bfloat16 *."
    )
    assert told("half *out", "const float *weight").startswith("rmsnorm declares __half * for out (parameter #0")


@pytest.mark.parametrize(
    "out", ["nv_bfloat16 * out", "uint4* out", "unsigned short* out", "T* out", "float out", "bf16* o"]
)
def test_what_may_be_right_is_not_refused(out: str) -> None:
    assert told(out, "__nv_bfloat16 const* weight") == ""


def test_solutions_and_alternatives_declare_what_they_get() -> None:
    for folder in (KIT / "solutions", *(KIT / "tests/alternatives").iterdir()):
        for contract in CONTRACTS.values():
            file = folder / "engine/kernels" / contract.file
            assert not file.exists() or misdeclared(file.read_text(), contract) == "", file
