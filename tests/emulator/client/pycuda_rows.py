"""What the tests of the emulated pycuda share: a module of kernels, host arrays, what an error has to look like."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

SOURCE = """
#include <cuda_bf16.h>
__constant__ float coefficients[4];
__device__ int counter = 7;

extern "C" __global__ void scale(float* out, const float* x, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { out[i] = factor * x[i]; }
}
extern "C" __global__ void dimensions(int* out) {
    out[0] = gridDim.x; out[1] = gridDim.y; out[2] = gridDim.z; out[3] = blockDim.x;
}
extern "C" __global__ void __launch_bounds__(64) bounded(int* out) { out[0] = blockDim.x; }
extern "C" __global__ void dynamic(float* out, int n) {
    extern __shared__ float buffer[];
    buffer[n - 1] = 3.0f;
    out[0] = buffer[n - 1];
}
extern "C" __global__ void variables(float* out) { out[0] = coefficients[2]; out[1] = counter; }
extern "C" __global__ void widths(double* out, signed char a, short b, long long c, double d, unsigned e) {
    out[0] = a + b + c + d + e;
}
extern "C" __global__ void by_value(float* out, float4 v) { out[0] = v.w; }
extern "C" __global__ void widen(float* out, const __nv_bfloat16* x, int n) {
    int i = threadIdx.x;
    if (i < n) { out[i] = __bfloat162float(x[i]); }
}
"""

BLOCK = (32, 1, 1)
x = np.arange(16, dtype=np.float32)
frozen = np.zeros(16, np.float32)
frozen.flags.writeable = False


def expect_error(call: Callable[[], Any], kind: str, text: str) -> BaseException:
    """The call raises an exception of this qualified class whose text starts so (a regular expression)."""
    with pytest.raises(BaseException, match=f"(?s)^{text}") as caught:
        call()
    found = caught.type.__name__ if caught.type.__module__ == "builtins" else qualified(caught.type)
    assert found == kind
    return caught.value


def qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


ARGUMENT = "Boost.Python.ArgumentError"
LOGIC = "pycuda._driver.LogicError"


def boost(call: str, given: str, signature: str) -> str:
    return re.escape(f"Python argument types in\n    {call}({given})\ndid not match C++ signature:\n    {signature}")


def extent(kind: str, value: str) -> str:
    return (
        f"No registered converter was able to produce a C\\+\\+ rvalue of type {kind} from this Python object of "
        f"type {value}$"
    )


NO_STREAM = (
    "No registered converter was able to extract a C\\+\\+ reference to type pycuda::stream from this Python obj"
)
