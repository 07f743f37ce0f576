"""The emulated pycuda against the behaviour that was observed on PyCUDA 2026.1: results, exception types, messages."""

import gc
import re
import struct
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
import pytest
from pycuda import _driver
from pycuda.compiler import SourceModule, compile

from tests.emulator.conftest import Program

pytestmark = pytest.mark.usefixtures("context")

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


@pytest.fixture(scope="module")
def module(context: None) -> SourceModule:
    return SourceModule(SOURCE, no_extern_c=True)


@pytest.fixture
def p() -> Any:
    """Device memory that holds `x`."""
    return drv.to_device(x)


@pytest.fixture
def f(module: SourceModule) -> Any:
    """The kernel of `scale(out, x, factor, n)`."""
    return module.get_function("scale")


def expect_error(call: Callable[[], Any], kind: str, text: str) -> BaseException:
    """The call raises an exception of this qualified class whose text starts so (a regular expression)."""
    with pytest.raises(BaseException, match=f"(?s)^{text}") as caught:
        call()
    found = caught.type.__name__ if caught.type.__module__ == "builtins" else _qualified(caught.type)
    assert found == kind
    return caught.value


def _qualified(kind: type) -> str:
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

# Memory: how each call fails on PyCUDA, or what it returns

HTOD = "memcpy_htod(unsigned long long dest, pycudaboost::python::api::object src)"
MEMSET32 = "memset_d32(unsigned long long dest, unsigned int data, unsigned long size)"
MEMORY_ERRORS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "alloc 0": (lambda p: drv.mem_alloc(0), LOGIC, "cuMemAlloc failed: invalid argument$"),
    "alloc too much": (lambda p: drv.mem_alloc(1 << 50), "pycuda._driver.MemoryError", "cuMemAlloc failed: out of mem"),
    "alloc np.int64": (
        lambda p: drv.mem_alloc(np.int64(8)),
        ARGUMENT,
        boost("pycuda._driver.mem_alloc", "numpy.int64", "mem_alloc(unsigned long)"),
    ),
    "alloc float": (lambda p: drv.mem_alloc(8.0), ARGUMENT, "Python argument types in\n    pycuda._driver.mem_alloc"),
    "alloc negative": (lambda p: drv.mem_alloc(-1), "OverflowError", "can't convert negative value to unsigned int$"),
    "pointer arithmetic": (lambda p: p + 8, "TypeError", "unsupported operand .* 'DeviceAllocation' and 'int'"),
    "htod not contiguous": (lambda p: drv.memcpy_htod(p, x[::2]), "ValueError", "ndarray is not contiguous$"),
    "htod list": (lambda p: drv.memcpy_htod(p, [1]), "TypeError", "a bytes-like object is required, not 'list'$"),
    "htod np.intp": (
        lambda p: drv.memcpy_htod(np.intp(int(p)), x),
        ARGUMENT,
        boost("pycuda._driver.memcpy_htod", "numpy.int64, numpy.ndarray", HTOD),
    ),
    "htod GPUArray": (
        lambda p: drv.memcpy_htod(gpuarray.empty(16, np.float32), x),
        ARGUMENT,
        boost("pycuda._driver.memcpy_htod", "GPUArray, numpy.ndarray", HTOD),
    ),
    "htod one argument": (
        lambda p: drv.memcpy_htod(p),
        ARGUMENT,
        boost("pycuda._driver.memcpy_htod", "DeviceAllocation", HTOD),
    ),
    "htod too large": (lambda p: drv.memcpy_htod(p, np.zeros(17, "f")), LOGIC, "cuMemcpyHtoD failed: invalid argumen"),
    "htod wild": (lambda p: drv.memcpy_htod(64, x), LOGIC, "cuMemcpyHtoD failed: invalid argument$"),
    "htod past the end": (lambda p: drv.memcpy_htod(int(p) + 4, x), LOGIC, "cuMemcpyHtoD failed: invalid argument$"),
    "htod async too large": (
        lambda p: drv.memcpy_htod_async(p, np.zeros(17, "f")),
        LOGIC,
        "cuMemcpyHtoDAsync failed: invalid argument$",
    ),
    "htod stream": (lambda p: drv.memcpy_htod_async(p, x, 3), "TypeError", NO_STREAM),
    "dtoh read-only": (lambda p: drv.memcpy_dtoh(frozen, p), "ValueError", "buffer source array is read-only$"),
    "dtoh bytes": (lambda p: drv.memcpy_dtoh(bytes(3), p), "BufferError", r"Object is not writable\.$"),
    "dtoh not contiguous": (lambda p: drv.memcpy_dtoh(x[::2], p), "ValueError", "ndarray is not contiguous$"),
    "dtoh swapped": (
        lambda p: drv.memcpy_dtoh(p, x),
        ARGUMENT,
        "Python argument types in\n    pycuda._driver.memcpy_dt",
    ),
    "dtoh too large": (lambda p: drv.memcpy_dtoh(np.zeros(17, "f"), p), LOGIC, "cuMemcpyDtoH failed: invalid argumen"),
    "dtod float": (lambda p: drv.memcpy_dtod(p, p, 4.0), ARGUMENT, "Python argument types in"),
    "dtod too large": (lambda p: drv.memcpy_dtod(p, p, 65), LOGIC, "cuMemcpyDtoD failed: invalid argument$"),
    "memset float": (
        lambda p: drv.memset_d32(p, 1.0, 4),
        ARGUMENT,
        boost("pycuda._driver.memset_d32", "DeviceAllocation, float, int", MEMSET32),
    ),
    "memset negative": (lambda p: drv.memset_d32(p, -1, 4), "OverflowError", "can't convert negative value to unsig"),
    "memset 256": (lambda p: drv.memset_d8(p, 256, 4), "OverflowError", "bad numeric conversion: positive overflow$"),
    "memset too large": (lambda p: drv.memset_d32(p, 0, 17), LOGIC, "cuMemsetD32 failed: invalid argument$"),
    "pagelocked float": (lambda p: drv.pagelocked_empty((4.0,), "f"), "TypeError", extent("long", "float")),
    "pagelocked np.int64": (
        lambda p: drv.pagelocked_empty((np.int64(4),), "f"),
        "TypeError",
        extent("long", r"numpy\.int64"),
    ),
    "like a list": (lambda p: drv.mem_alloc_like([1]), "AttributeError", "'list' object has no attribute 'nbytes'$"),
    "device 5": (lambda p: drv.Device(5), LOGIC, "cuDeviceGet failed: invalid device ordinal$"),
    "device attribute": (lambda p: drv.Device(0).nothing, "AttributeError", ".*has no attribute 'NOTHING'$"),
    "detach twice": (
        lambda p: [drv.Context.detach(context := drv.Device(0).retain_primary_context()), context.detach()],
        LOGIC,
        "context::detach failed: invalid device context - cannot detach from invalid context$",
    ),
}


@pytest.mark.parametrize("row", MEMORY_ERRORS)
def test_memory_errors(row: str, p: Any) -> None:
    call, kind, text = MEMORY_ERRORS[row]
    expect_error(lambda: call(p), kind, text)


def test_freed_memory(p: Any) -> None:
    p.free()
    expect_error(p.free, LOGIC, "device_allocation::free failed: invalid resource handle$")
    expect_error(lambda: drv.memcpy_htod(p, x), LOGIC, "cuMemcpyHtoD failed: invalid argument$")


def test_exceptions_have_pycudas_classes() -> None:
    for name in ("LogicError", "LaunchError", "MemoryError", "RuntimeError"):
        assert issubclass(getattr(drv, name), drv.Error)
        assert not issubclass(getattr(drv, name), MemoryError | RuntimeError | TypeError)
    assert issubclass(drv.CompileError, drv.Error)
    assert issubclass(_driver.ArgumentError, TypeError)
    classes = {700: "LogicError", 716: "LogicError", 710: "LogicError", 719: "LaunchError", 701: "LaunchError"}
    classes |= {702: "LaunchError", 209: "RuntimeError", 100: "RuntimeError", 2: "MemoryError", 999: "Error"}
    for code, name in classes.items():
        assert type(_driver.failure("cuX", code, "text")) is getattr(drv, name)


def test_copies_keep_bytes_and_order(p: Any) -> None:
    assert int(p) % 256 == 0
    assert hex(p) == hex(int(p))
    back = np.empty_like(x)
    drv.memcpy_dtoh(back, p)
    assert (back == x).all()
    drv.memcpy_htod(int(p) + 4, x[:3])
    assert (drv.from_device(p, (4,), np.float32) == [0, 0, 1, 2]).all()
    q = drv.mem_alloc_like(x)
    drv.memcpy_dtod(q, p, x.nbytes)
    assert (drv.from_device_like(q, x)[1:4] == [0, 1, 2]).all()
    fortran = np.asfortranarray(x.reshape(4, 4))
    drv.memcpy_htod(p, fortran)
    assert (drv.from_device(p, (4, 4), np.float32) == fortran.T).all()
    for source in (b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), np.frombuffer(b"abcd", "u4")[0]):
        drv.memcpy_htod_async(dest=p, src=source, stream=drv.Stream())
        assert drv.from_device(p, 4, np.uint8).tobytes() == b"abcd"
    rounded = x.astype(ml_dtypes.bfloat16)
    drv.memcpy_htod(p, rounded)
    assert (drv.from_device_like(p, rounded) == rounded).all()
    drv.memcpy_htod(p, np.zeros((0, 3), "f"))
    assert bytes(p.as_buffer(4)) == rounded[:2].tobytes()


@pytest.mark.parametrize(("name", "dtype"), [("memset_d8", np.uint8), ("memset_d16", np.uint16), ("memset_d32", "u4")])
def test_memset_counts_elements(name: str, dtype: Any) -> None:
    q = drv.to_device(np.zeros(8, dtype))
    getattr(drv, name)(q, 201, 5)
    getattr(drv, f"{name}_async")(q, 7, 1, drv.Stream())
    assert drv.from_device(q, 8, dtype).tolist() == [7, 201, 201, 201, 201, 0, 0, 0]


def test_memory_is_freed_with_its_last_reference() -> None:
    gc.collect()
    before = drv.mem_get_info()[0]
    kept = [drv.mem_alloc(1 << 20) for _ in range(4)]
    assert drv.mem_get_info()[0] <= before - (4 << 20)
    del kept
    gc.collect()
    assert drv.mem_get_info()[0] == before


def test_host_arrays() -> None:
    for array in (drv.pagelocked_empty((2, 3), np.float32, order="F"), drv.aligned_empty((2, 3), "f", "F")):
        assert array.flags.f_contiguous
        assert array.ctypes.data % 4096 == 0
    assert type(drv.pagelocked_empty(4, np.float32).base).__name__ == "PagelockedHostAllocation"
    assert (drv.pagelocked_zeros((3,), ml_dtypes.bfloat16) == 0).all()
    assert drv.aligned_zeros_like(x, alignment=64).tolist() == [0] * 16
    assert drv.pagelocked_empty((0, 3), np.float32).shape == (0, 3)
    with pytest.raises(ValueError, match="could not detect array order"):
        drv.aligned_empty_like(x[::2])
    assert drv.register_host_memory(x).tolist() == x.tolist()


# Launches

LAUNCH = (
    "_launch_kernel(pycuda::function {lvalue}, pycudaboost::python::tuple, pycudaboost::python::tuple, "
    "pycudaboost::python::api::object, unsigned int, pycudaboost::python::api::object)"
)
BLOCK_SHAPE = "_set_block_shape(pycuda::function {lvalue}, int, int, int)"
LAUNCH_ERRORS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no block": ({"block": None}, "ValueError", "must specify block size$"),
    "block of 1": ({"block": (32,)}, ARGUMENT, boost("Function._set_block_shape", "Function, int", BLOCK_SHAPE)),
    "block of 2": ({"block": (32, 1)}, ARGUMENT, boost("Function._set_block_shape", "Function, int, int", BLOCK_SHAPE)),
    "block int": ({"block": 32}, "TypeError", r".*argument after \* must be an iterable, not int$"),
    "block list": (
        {"block": [32, 1, 1]},
        ARGUMENT,
        boost("Function._launch_kernel", "Function, tuple, list, bytes, int, NoneType", LAUNCH),
    ),
    "block np.int64": (
        {"block": (np.int64(32), 1, 1)},
        ARGUMENT,
        boost("Function._set_block_shape", "Function, numpy.int64, int, int", BLOCK_SHAPE),
    ),
    "block float": ({"block": (32.0, 1, 1)}, ARGUMENT, "Python argument types in\n    Function._set_block_shape"),
    "block 2048": ({"block": (2048, 1, 1)}, LOGIC, "cuFuncSetBlockShape failed: invalid argument"),
    "block 0": ({"block": (0, 1, 1)}, LOGIC, "cuFuncSetBlockShape failed: invalid argument"),
    "grid list": (
        {"grid": [1, 1]},
        ARGUMENT,
        boost("Function._launch_kernel", "Function, list, tuple, bytes, int, NoneType", LAUNCH),
    ),
    "grid int": ({"grid": 3}, ARGUMENT, "Python argument types in\n    Function._launch_kernel"),
    "grid float": ({"grid": (1.0, 1)}, "TypeError", extent("unsigned int", "float")),
    "grid np.int64": ({"grid": (np.int64(3), 1)}, "TypeError", extent("unsigned int", r"numpy\.int64")),
    "grid of 4": ({"grid": (1, 1, 1, 1)}, LOGIC, "function::launch_kernel failed: invalid resource handle - too many"),
    "grid 70000": ({"grid": (1, 70000)}, LOGIC, "cuLaunchKernel failed: invalid argument"),
    "grid 0": ({"grid": (0, 1)}, LOGIC, "cuLaunchKernel failed: invalid argument"),
    "grid negative": ({"grid": (-1, 1)}, "OverflowError", "can't convert negative value to unsigned int$"),
    "shared 60000": ({"shared": 60000}, LOGIC, "cuLaunchKernel failed: invalid argument"),
    "shared float": ({"shared": 1.0}, ARGUMENT, "Python argument types in\n    Function._launch_kernel"),
    "shared np.int64": ({"shared": np.int64(4)}, ARGUMENT, "Python argument types in\n    Function._launch_kernel"),
    "stream int": ({"stream": 0}, "TypeError", NO_STREAM),
    "shared_size": ({"shared_size": 4}, "ValueError", "extra keyword arguments: shared_size$"),
    "timed in a stream": ({"time_kernel": True, "stream": ...}, "AssertionError", "Can't time the kernel on an async"),
}


@pytest.mark.parametrize("row", LAUNCH_ERRORS)
def test_launch_errors(row: str, f: Any, p: Any) -> None:
    options, kind, text = LAUNCH_ERRORS[row]
    options = {"block": BLOCK} | {k: drv.Stream() if v is ... else v for k, v in options.items()}
    expect_error(lambda: f(p, p, np.float32(2), np.int32(16), **options), kind, text)
    if set(options) <= {"block", "grid"} and not isinstance(options["block"], int | list | None):
        grid = options.get("grid", (1, 1))
        f.prepare("PPfi")
        expect_error(lambda: f.prepared_call(grid, options["block"], p, p, 2.0, 16), kind, text)
        f.prepared_call((1, 1), BLOCK, p, p, 1.0, 16)
        expect_error(lambda: f.prepared_call(grid, options["block"], p, p, 2.0, 16), kind, text)


INVALID = r"invalid type on parameter #2 \(0-based\)"
IS_FLOAT = r"parameter #2 \(0-based\) of scale is of kind float and 4 bytes, got "
IS_INT = r"parameter #3 \(0-based\) of scale is of kind int and 4 bytes, got "
ARGUMENT_ERRORS: dict[str, tuple[Callable[[Any], list[Any]], str, str]] = {
    "int": (lambda p: [p, p, 2, np.int32(16)], "TypeError", f"{INVALID}: .*np.int32"),
    "float": (lambda p: [p, p, 2.0, np.int32(16)], "TypeError", f"{INVALID}: .*np.float32"),
    "bool": (lambda p: [p, p, True, np.int32(16)], "TypeError", INVALID),
    "np.bool_": (lambda p: [p, p, np.bool_(1), np.int32(16)], "TypeError", INVALID),
    "str": (lambda p: [p, p, "x", np.int32(16)], "TypeError", f"{INVALID}$"),
    "None": (lambda p: [p, p, None, np.int32(16)], "TypeError", f"{INVALID}$"),
    "bf16 scalar": (lambda p: [p, p, ml_dtypes.bfloat16(1), np.int32(16)], "TypeError", INVALID),
    "float16": (lambda p: [p, p, np.float16(1), np.int32(16)], "struct.error", "bad char in struct format$"),
    "address": (lambda p: [int(p) + 8, p, np.float32(2), np.int32(16)], "TypeError", "invalid type on parameter #0"),
    "ndarray": (lambda p: [p, x, np.float32(2), np.int32(16)], "TypeError", "invalid type on parameter #1 .*by value"),
    "np.int64": (
        lambda p: [p, p, np.float32(2), np.int64(16)],
        "TypeError",
        f"{IS_INT}numpy.int64 of 8 bytes: use np.int32",
    ),
    "np.float64": (
        lambda p: [p, p, np.float64(2), np.int32(16)],
        "TypeError",
        f"{IS_FLOAT}numpy.float64 of 8 bytes: use np.float32",
    ),
    "int as float": (lambda p: [p, p, np.int32(2), np.int32(16)], "TypeError", f"{IS_FLOAT}numpy.int32 of 4 bytes"),
    "float as int": (lambda p: [p, p, np.float32(2), np.float32(16)], "TypeError", f"{IS_INT}numpy.float32 of 4 bytes"),
    "array as int": (lambda p: [p, p, np.float32(2), p], "TypeError", f"{IS_INT}DeviceAllocation of 8 bytes"),
    "too few": (lambda p: [p, p, np.float32(2)], "TypeError", "scale takes 4 arguments, got 3"),
    "too many": (lambda p: [p, p, np.float32(2), np.int32(16), p], "TypeError", "scale takes 4 arguments, got 5"),
    "In of a list": (
        lambda p: [p, drv.In([1]), np.float32(2), np.int32(16)],
        "TypeError",
        "could not determine array length of '<class 'list'>': unsupported array type or not an array$",
    ),
    "In of an empty array": (
        lambda p: [p, drv.In(x[:0]), np.float32(2), np.int32(16)],
        LOGIC,
        "cuMemAlloc failed: invalid argument$",
    ),
    "In not contiguous": (
        lambda p: [p, drv.In(x[::2]), np.float32(2), np.int32(16)],
        "ValueError",
        "ndarray is not contiguous$",
    ),
}


@pytest.mark.parametrize("row", ARGUMENT_ERRORS)
def test_argument_errors(row: str, f: Any, p: Any) -> None:
    arguments, kind, text = ARGUMENT_ERRORS[row]
    expect_error(lambda: f(*arguments(p), block=BLOCK), kind, text)


PREPARED_ERRORS: dict[str, tuple[Any, Callable[[Any], list[Any]], str, str]] = {
    "GPUArray": (
        "PPfi",
        lambda p: [gpuarray.to_gpu(x), p, 2.0, 16],
        "struct.error",
        r"required argument is not an integer \(.*#0.*GPUArray.*\.gpudata",
    ),
    "float for int": ("PPfi", lambda p: [p, p, 2.0, 1.5], "struct.error", "required argument is not an integer"),
    "str for float": ("PPfi", lambda p: [p, p, "x", 16], "struct.error", "required argument is not a float"),
    "ndarray": (
        "PPfi",
        lambda p: [x, p, 2.0, 16],
        "TypeError",
        "only integer scalar arrays can be converted to a scal",
    ),
    "large int": (
        "PPfi",
        lambda p: [p, p, 2.0, 2**40],
        "struct.error",
        "'i' format requires -2147483648 <= number <= 2",
    ),
    "too few": ("PPfi", lambda p: [p, p, 2.0], "struct.error", "pack requires exactly 4 arguments$"),
    "too many": ("PPfi", lambda p: [p, p, 2.0, 16, 3], "struct.error", "pack requires exactly 4 arguments$"),
    "unknown character": ("PPfz", lambda p: [p, p, 2.0, 16], "struct.error", "bad char in struct format$"),
    "bf16": (
        [np.intp, "P", np.dtype(ml_dtypes.bfloat16), "i"],
        lambda p: [p, p, 2.0, 16],
        "struct.error",
        "bad char in struct format$",
    ),
    "format too short": ("PPf", lambda p: [p, p, 2.0], "TypeError", "scale takes 4 arguments, got 3"),
    "format too wide": (
        "PPdi",
        lambda p: [p, p, 2.0, 16],
        "TypeError",
        f'{IS_FLOAT}the format "d" of 8 bytes',
    ),
    "not prepared": (None, lambda p: [p, p, 2.0, 16], "AttributeError", ".*has no attribute 'ARG_FORMAT'"),
}


@pytest.mark.parametrize("row", PREPARED_ERRORS)
def test_prepared_errors(row: str, f: Any, p: Any) -> None:
    types, arguments, kind, text = PREPARED_ERRORS[row]
    if types is not None:
        assert f.prepare(types) is f
    expect_error(lambda: f.prepared_call((1, 1), BLOCK, *arguments(p)), kind, text)
    expect_error(lambda: f.prepared_async_call((1, 1), BLOCK, drv.Stream(), *arguments(p)), kind, text)


def test_prepared_keywords(f: Any, p: Any) -> None:
    f.prepare("PPfi")
    text = "unknown keyword arguments: shared$"
    expect_error(lambda: f.prepared_call((1, 1), BLOCK, p, p, 2.0, 16, shared=4), "TypeError", text)
    expect_error(lambda: f.prepared_call((1, 1), [32, 1, 1], p, p, 2.0, 16), ARGUMENT, "Python argument types in")


def test_every_way_to_call(f: Any, p: Any) -> None:
    out = gpuarray.empty(16, np.float32)
    source = gpuarray.to_gpu(np.concatenate([x, x]))[8:24]
    expected = 2 * np.concatenate([x[8:], x[:8]])
    f.prepare([np.intp, gpuarray.GPUArray, np.float32, "i"])
    assert f.arg_format == "lLfi"
    ways: dict[str, Callable[[], Any]] = {
        "views": lambda: f(out, source, np.float32(2), np.int32(16), block=BLOCK),
        "pointers": lambda: f(out.gpudata, np.intp(source.gpudata), np.float32(2), np.uint32(16), block=(16, 1, 1)),
        "stream": lambda: f(out, source, np.float32(2), np.int32(16), block=BLOCK, stream=drv.Stream(), grid=(3,)),
        "prepared": lambda: f.prepared_call((1, 1, 1), BLOCK, out.gpudata, source.gpudata, 2.0, 16),
        "np.int64 prepared": lambda: f.prepared_call((1,), BLOCK, out.ptr, source.ptr, np.float64(2), np.int64(16)),
        "async": lambda: f.prepared_async_call((4, 1), (4, 1, 1), None, out.ptr, source.ptr, 2, 16, shared_size=64),
        "bools": lambda: f(out, source, np.float32(2), np.int32(16), block=(16, True, 1), grid=(True, 1)),
    }
    for name, call in ways.items():
        out.fill(-1)
        call()
        assert (out.get() == expected).all(), name
    assert 0 < f(out, source, np.float32(2), np.int32(16), block=BLOCK, time_kernel=True) < 10
    assert 0 < f.prepared_timed_call((1, 1), BLOCK, out.ptr, source.ptr, 2.0, 16)() < 10


def test_in_and_out_arrays(f: Any) -> None:
    source, target = x.copy(), np.zeros(16, np.float32)
    f(drv.Out(target), drv.In(source), np.float32(3), np.int32(16), block=BLOCK)
    assert (target == 3 * x).all()
    both = drv.InOut(source)
    f(both, both, np.float32(2), np.int32(16), block=BLOCK, stream=drv.Stream())
    assert (source == 2 * x).all()
    call = lambda: f(drv.Out(frozen), drv.In(x), np.float32(1), np.int32(16), block=BLOCK)  # noqa: E731
    expect_error(call, "ValueError", "buffer source array is read-only$")


def test_scalar_widths_arrive(module: SourceModule) -> None:
    out = gpuarray.zeros(1, np.float64)
    scalars = np.int8(-1), np.int16(300), np.longlong(1 << 40), np.float64(0.5), np.uint32(7)
    module.get_function("widths")(out, *scalars, block=(1, 1, 1))
    assert out.get()[0] == -1 + 300 + 2.0**40 + 0.5 + 7
    module.get_function("widths").prepare("PbhqdI").prepared_call((1, 1), (1, 1, 1), out.gpudata, 1, 2, 3, 4.0, 5)
    assert out.get()[0] == 15


def test_vector_after_pointer_is_refused(module: SourceModule, p: Any) -> None:
    float4 = np.zeros(1, [(name, "f4") for name in "xyzw"])[0]
    text = "parameter #1 .* kind struct and 16 bytes, at byte 16, where PyCUDA would put it at byte 8"
    expect_error(lambda: module.get_function("by_value")(p, float4, block=(1, 1, 1)), "TypeError", text)


def test_grid_has_up_to_three_extents(module: SourceModule) -> None:
    out = gpuarray.empty(4, np.int32)
    for grid in ((), (2,), (2, 3), (2, 3, 4)):
        module.get_function("dimensions")(out, block=BLOCK, grid=grid)
        assert out.get().tolist() == [*grid, *[1] * (3 - len(grid)), 32]


def test_limits_of_a_function(module: SourceModule, p: Any) -> None:
    bounded, dynamic = module.get_function("bounded"), module.get_function("dynamic")
    assert bounded.max_threads_per_block == 64
    assert bounded.shared_size_bytes == 0
    bounded(p, block=(64, 1, 1))
    text = "cuFuncSetBlockShape failed: invalid argument - .*64 threads"
    expect_error(lambda: bounded(p, block=(65, 1, 1)), LOGIC, text)
    attribute = drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
    expect_error(lambda: dynamic.set_attribute(attribute, 240_000), LOGIC, "cuFuncSetAttribute failed: invalid argu")
    expect_error(lambda: dynamic.set_attribute(attribute, np.int64(3)), ARGUMENT, "Python argument types in")
    dynamic.set_attribute(attribute, 60_000)
    assert dynamic.get_attribute(attribute) == 60_000
    assert isinstance(dynamic.num_regs, int)
    dynamic(p, np.int32(15_000), block=(1, 1, 1), shared=60_000)
    assert drv.from_device(p, 1, np.float32)[0] == 3
    assert repr(attribute) == "pycuda._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES"
    assert int(attribute) == 8


def test_modules(module: SourceModule) -> None:
    expect_error(lambda: module.get_function("missing"), LOGIC, "cuModuleGetFunction failed: named symbol not found$")
    expect_error(lambda: module.get_function(b"scale"), ARGUMENT, "Python argument types in\n    Module.get_function")
    expect_error(lambda: module.get_global("missing"), LOGIC, "cuModuleGetGlobal failed: named symbol not found$")
    pointer, size = module.get_global("coefficients")
    assert size == 16
    drv.memcpy_htod(pointer, np.float32([1, 2, 3, 4]))
    out = gpuarray.zeros(2, np.float32)
    module.get_function("variables")(out, block=(1, 1, 1))
    assert out.get().tolist() == [3, 7]
    assert drv.from_device(module.get_global("counter")[0], 1, np.int32)[0] == 7


def test_compiler(capfd: Any) -> None:
    wrapped = SourceModule("struct S { int a; };\n__global__ void k(int* out) { out[0] = 5; }")
    out = gpuarray.zeros(1, np.int32)
    wrapped.get_function("k")(out, block=(1, 1, 1))
    assert out.get()[0] == 5
    unwrapped = SourceModule("__global__ void k(int* out) { out[0] = 5; }", no_extern_c=True)
    expect_error(lambda: unwrapped.get_function("k"), LOGIC, "cuModuleGetFunction failed: named symbol not found$")
    with pytest.raises(drv.CompileError):
        SourceModule("#include <cuda_bf16.h>\n__global__ void k(__nv_bfloat16* out) {}")
    source = '#line 1 "mine.cu"\n\nextern "C" __global__ void k(int* out) { out[0] = WIDTH; }\n'
    with pytest.raises(drv.CompileError) as caught:
        SourceModule(source, no_extern_c=True, arch="sm_80", cache_dir=False)
    assert "mine.cu:2" in caught.value.stderr
    assert "WIDTH" in caught.value.stderr
    assert caught.value.msg in str(caught.value)
    assert caught.value.stderr in str(caught.value)
    assert isinstance(caught.value.command_line, list)
    assert isinstance(caught.value.stdout, str)
    kept = drv.module_from_buffer(compile(source, options=["-DWIDTH=9"], no_extern_c=True, keep=True))
    kept.get_function("k")(out, block=(1, 1, 1))
    assert out.get()[0] == 9
    assert "*** compiler output in " in capfd.readouterr().out


def test_include_directories(tmp_path: Any) -> None:
    (tmp_path / "width.h").write_text("#define WIDTH 11\n")
    source = '#include "width.h"\nextern "C" __global__ void k(int* out) { out[0] = WIDTH; }'
    out = gpuarray.zeros(1, np.int32)
    for width in (11, 12):  # an edited header is seen
        (tmp_path / "width.h").write_text(f"#define WIDTH {width}\n")
        module = SourceModule(source, no_extern_c=True, include_dirs=[str(tmp_path)])
        module.get_function("k")(out, block=(1, 1, 1))
        assert out.get()[0] == width


def test_compiler_warnings_are_python_warnings() -> None:
    source = '#warning "look here"\nextern "C" __global__ void k() {}'
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SourceModule(source, no_extern_c=True)
    assert len(caught) == 1
    for warning in caught:
        assert warning.category is UserWarning
        assert warning.filename == __file__
        assert str(warning.message).startswith("The CUDA compiler succeeded, but said the following:\n")


# Devices, contexts, events


def test_device() -> None:
    device = drv.Context.get_device()
    assert drv.Device.count() == 1
    assert "emulated" in device.name().lower()
    assert device.compute_capability() == (8, 6)
    assert device.total_memory() == drv.mem_get_info()[1]
    assert device.warp_size == device.get_attribute(drv.device_attribute.WARP_SIZE) == 32
    assert device.max_threads_per_block == 1024
    assert device.max_shared_memory_per_block_optin == 99 * 1024
    assert device.get_attributes()[drv.device_attribute.MULTIPROCESSOR_COUNT] >= 1
    assert drv.get_version() >= (12,)


def test_contexts_are_a_stack_of_the_thread() -> None:
    first = drv.Context.get_current()
    second = drv.Device(0).make_context()
    assert drv.Context.get_current() is second
    second.detach()
    assert drv.Context.get_current() is first
    expect_error(second.push, LOGIC, "cuCtxPushCurrent failed: invalid device context$")
    found: list[Any] = []

    def other_thread() -> None:
        for call in (lambda: drv.mem_alloc(4), drv.Context.synchronize, drv.Context.pop):
            try:
                call()
            except drv.LogicError as error:
                found.append(str(error))
        first.push()
        found.append(drv.from_device(drv.to_device(x), 16, np.float32).tolist())
        drv.Context.pop()

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert found == [
        "cuMemAlloc failed: invalid device context",
        "cuCtxSynchronize failed: invalid device context",
        "context::pop failed: invalid device context - cannot pop non-current context",
        x.tolist(),
    ]


def test_events_and_streams(f: Any, p: Any) -> None:
    stream, start, end = drv.Stream(), drv.Event(), drv.Event(drv.event_flags.BLOCKING_SYNC)
    expect_error(lambda: start.record(3), "TypeError", NO_STREAM)
    expect_error(lambda: end.time_since(start), LOGIC, "cuEventElapsedTime failed: invalid resource handle$")
    assert start.record(stream) is start
    f(p, p, np.float32(1), np.int32(16), block=BLOCK, stream=stream)
    assert end.record(stream).synchronize() is end
    assert end.query() is True
    assert 0 < end.time_since(start) < 10_000
    assert start.time_till(end) == end.time_since(start) == -start.time_since(end)
    stream.wait_for_event(end)
    stream.synchronize()
    assert stream.is_done()
    assert isinstance(stream.handle, int)


# Arrays


def test_gpuarray_round_trips() -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float32, ml_dtypes.bfloat16, np.int32, np.uint8, np.float64, np.int64):
        for shape in ((), (1,), (7,), (3, 5), (2, 3, 4), (0, 3)):
            array = rng.integers(0, 100, shape).astype(dtype)
            device = gpuarray.to_gpu(array)
            assert device.get().dtype == array.dtype
            assert device.shape == array.shape
            assert (device.get() == array).all() and (device.copy().get() == array).all() if array.size else True
            assert device.nbytes == array.nbytes
            assert device.size == array.size
            assert device.ndim == array.ndim
    assert (gpuarray.to_gpu(x.reshape(4, 4).T).get() == x.reshape(4, 4).T).all()
    assert (gpuarray.to_gpu_async(x.reshape(4, 4)[:, ::2], stream=drv.Stream()).get() == x.reshape(4, 4)[:, ::2]).all()


def test_gpuarray_constructors() -> None:
    assert gpuarray.zeros(3).dtype == np.float64
    assert gpuarray.ones((2, 2)).get().tolist() == [[1, 1], [1, 1]]
    like = gpuarray.to_gpu(np.asfortranarray(x.reshape(4, 4)))
    assert gpuarray.empty_like(like).strides == like.strides
    assert gpuarray.zeros_like(like, np.int8, order="C").strides == (4, 1)
    assert gpuarray.empty_like(like[:2]).strides == (4, 16)
    assert gpuarray.empty([3, np.int64(4)], "float32", order="F").strides == (4, 12)
    for value, dtype in ((2.5, np.float32), (-3, np.int64), (1.5, ml_dtypes.bfloat16), (7, np.uint8)):
        assert (gpuarray.empty(5, dtype).fill(value).get() == np.full(5, value, dtype)).all()
    assert gpuarray.empty((0,), np.float32).gpudata is None
    view = gpuarray.GPUArray((4,), np.float32, gpudata=gpuarray.to_gpu(x).ptr)
    assert view.base is None
    assert isinstance(view.gpudata, int)


GPUARRAY_ERRORS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "no dtype": (lambda g: gpuarray.empty(3), "TypeError", ".*missing 1 required positional argument: 'dtype'$"),
    "float extent": (lambda g: gpuarray.empty((3.0,), "f"), ARGUMENT, "Python argument types in"),
    "negative extent": (lambda g: gpuarray.empty((-3,), "f"), "OverflowError", "can't convert negative value"),
    "order": (lambda g: gpuarray.empty((3,), "f", order="X"), "ValueError", "invalid order: X$"),
    "list": (lambda g: gpuarray.to_gpu([1]), "AttributeError", "'list' object has no attribute 'shape'$"),
    "get size": (lambda g: g.get(np.empty((3, 5), "f")), "ValueError", "self and ary must be the same size$"),
    "get dtype": (lambda g: g.get(np.empty((4, 4), "i")), "TypeError", "self and ary must have the same dtype$"),
    "set size": (lambda g: g.set(x[:2]), "ValueError", "ary and self must be the same size$"),
    "set dtype": (lambda g: g.set(np.zeros((4, 4))), "ValueError", "ary and self must have the same dtype$"),
    "reshape": (lambda g: g.reshape(5), "ValueError", "total size of new array must be unchanged$"),
    "reshape twice -1": (lambda g: g.reshape(-1, -1), "ValueError", "can only specify one unknown dimension$"),
    "reshape of columns": (lambda g: g[:, 1:3].reshape(8), "RuntimeError", "only contiguous arrays may be used as arg"),
    "view": (lambda g: g.view("V12"), "ValueError", "new type not compatible with array$"),
    "index 4": (lambda g: g[4], "IndexError", "subindex in axis 0 out of range$"),
    "too many indices": (lambda g: g[1, 2, 3], "IndexError", "tuple index out of range$"),
    "list index": (lambda g: g[[1, 2]], "IndexError", "invalid subindex in axis 0$"),
    "float index": (lambda g: g[0, 1.5], "IndexError", "invalid subindex in axis 1$"),
    "two ellipses": (lambda g: g[..., ...], "IndexError", "more than one ellipsis not allowed in index$"),
    "negative step": (lambda g: g[:, ::-1].get(), "OverflowError", "can't convert negative value to unsigned int$"),
    "setitem shape": (lambda g: g.__setitem__(0, x), "ValueError", "src and dst must be same shape$"),
    "setitem dtype": (lambda g: g.__setitem__(0, np.zeros(4)), "TypeError", "src and dst must have same dtype$"),
    "set other order": (
        lambda g: g[:, ::2].set(np.zeros((2, 4), "f").T),
        "ValueError",
        "src and dst must have same ord",
    ),
    "bool": (lambda g: bool(g), "ValueError", "The truth value of an array with more than one element is ambiguous"),
    "hash": (lambda g: hash(g), "TypeError", r"GPUArrays are not hashable\.$"),
    "len": (lambda g: len(g[0, 0]), "TypeError", r"len\(\) of unsized object$"),
    "ptr of nothing": (lambda g: gpuarray.empty(0, "f").ptr, "AttributeError", "'NoneType' object has no attribute"),
}


@pytest.mark.parametrize("row", GPUARRAY_ERRORS)
def test_gpuarray_errors(row: str) -> None:
    call, kind, text = GPUARRAY_ERRORS[row]
    expect_error(lambda: call(gpuarray.to_gpu(x.reshape(4, 4))), kind, text)


INDICES: list[Any] = [
    (slice(1, 3),), (slice(None), 1), (..., 1), (0, ..., 1), (None, 1), (slice(1, 2), slice(0, 2)), (1, -2), (...,),
    (slice(None, None, 2), slice(1, None, 3)), (np.int64(3),), (slice(2, 2),), (slice(20, 30),),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_gpuarray_views(index: Any) -> None:
    host = np.arange(20, dtype=np.float32).reshape(4, 5)
    device = gpuarray.to_gpu(host)
    view, want = device[index], host[index]
    assert view.shape == want.shape
    assert view.base is device
    assert isinstance(view.gpudata, int)
    assert (view.get() == want).all()
    if view.size:
        view[...] = (want + 1).astype(np.float32)
        assert (device[index].get() == want + 1).all()


def test_gpuarray_slice_backwards_is_not_empty() -> None:
    """PyCUDA's habit: a[5:2] has three elements, from index 5 on."""
    device = gpuarray.to_gpu(x)
    assert device[5:2].shape == (3,)
    assert device[5:2].get().tolist() == [5, 6, 7]


def test_gpuarray_shapes() -> None:
    device = gpuarray.to_gpu(x)
    assert device.reshape(2, -1).shape == device.reshape((2, 8)).shape == (2, 8)
    square = device.reshape(4, 4)
    assert square.reshape(4, 4) is square
    assert square.ravel().shape == (16,)
    assert square.view(np.uint16).shape == (4, 8)
    assert (square.view(np.int32).get() == x.view(np.int32).reshape(4, 4)).all()
    assert square.flags.c_contiguous
    assert not square.flags.f_contiguous
    assert not square[:, 1].flags.forc
    assert device.reshape((4, 4), order="F").strides == (4, 16)
    interface = square[1].__cuda_array_interface__
    assert interface["data"] == (square.ptr + 16, False)
    assert interface["shape"] == (4,)
    assert interface["typestr"] == "<f4"
    with pytest.warns(UserWarning, match="different shape"):
        square.set(x)
    with pytest.warns(DeprecationWarning, match="different shape"):
        square.get(np.empty(16, np.float32))
    device[2:4] = np.float32(9)
    assert str(device[1:5]) == "[1. 9. 9. 4.]"
    assert len(device) == 16
    assert bool(device[2])


def test_gpuarray_view_keeps_memory_alive() -> None:
    view = gpuarray.to_gpu(x)[4:]
    gc.collect()
    other = gpuarray.zeros(16, np.float32)
    assert view.get().tolist() == x[4:].tolist()
    assert other.size == 16


# What is not emulated


@pytest.mark.parametrize(
    "call",
    [
        lambda: drv.Memcpy2D, lambda: drv.managed_empty, lambda: drv.module_from_file, lambda: gpuarray.arange,
        lambda: gpuarray.dot, lambda: gpuarray.zeros(3) + 1, lambda: gpuarray.zeros(3).astype(np.int32), lambda: gpuarray.zeros(3).T,
        lambda: gpuarray.zeros(3) == 0, lambda: __import__("pycuda.curandom"), lambda: __import__("pycuda.elementwise"),
        lambda: SourceModule("").get_texref("t"), lambda: drv.Context.get_current().set_limit,
    ],
)  # fmt: skip
def test_what_is_not_emulated_says_so(call: Callable[[], Any]) -> None:
    with pytest.raises(NotImplementedError, match="is not emulated"):
        call()


def test_unknown_names_are_attribute_errors() -> None:
    import pycuda.compiler
    import pycuda.tools

    for module in (drv, gpuarray, pycuda.compiler, pycuda.tools):
        assert isinstance(module, types.ModuleType)
        assert not hasattr(module, "no_such_name")
    assert struct.error  # the class that PyCUDA's packing raises is Python's own


# Whole programs


def test_program_with_autoinit_ends_quietly(program: Program) -> None:
    result = program(
        "import numpy as np, pycuda.autoinit, pycuda.gpuarray as g, pycuda.driver as d\n"
        "a, b, e = g.to_gpu(np.arange(4)), d.mem_alloc(9), d.Event()\n"
        "print(a.get(), pycuda.autoinit.device.compute_capability(), pycuda.autoinit.context is d.Context.get_current())"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "[0 1 2 3] (8, 6) True\n", "")


def test_program_with_the_primary_context(program: Program) -> None:
    result = program("import pycuda.autoprimaryctx as c\nprint(c.device.count())")
    assert (result.returncode, result.stdout, result.stderr) == (0, "1\n", "")


def test_program_without_init(program: Program) -> None:
    result = program("import pycuda.driver as d\ntry: d.Device(0)\nexcept d.LogicError as e: print(e)")
    assert result.stdout == "cuDeviceGet failed: initialization error\n"


def test_program_that_forgets_its_context_is_aborted(program: Program) -> None:
    result = program("import pycuda.driver as d\nd.init()\nc = d.Device(0).make_context()\nprint('done')")
    assert result.returncode != 0
    assert result.stdout == "done\n"
    assert "The context stack was not empty" in result.stderr
    assert "Context.pop()" in result.stderr


def test_forked_process_is_refused(program: Program) -> None:
    result = program(
        "import os, pycuda.autoinit, pycuda.driver as d\n"
        "if os.fork() == 0:\n"
        "    try: d.mem_alloc(4)\n"
        "    except d.LogicError as e: print(e, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\nprint(int(d.mem_alloc(4)) > 0)"
    )
    assert "forked" in result.stdout
    assert result.stdout.endswith("True\n")
