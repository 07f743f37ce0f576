"""Kernels and their calls: results, exceptions and messages are those observed on PyCUDA 2026.1, but for three."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
import pytest
from pycuda.compiler import SourceModule

from tests.emulator.client.pycuda_rows import (
    ARGUMENT,
    BLOCK,
    LOGIC,
    NO_STREAM,
    SOURCE,
    boost,
    expect_error,
    extent,
    frozen,
    x,
)

pytestmark = pytest.mark.usefixtures("context")


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
        "cuMemAlloc failed: invalid argument - 0 bytes wanted",
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
