"""pycuda.gpuarray on the emulated GPU, as observed on PyCUDA 2026.1."""

import gc
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
import pytest

from tests.emulator.client.pycuda_rows import ARGUMENT, expect_error, x

pytestmark = pytest.mark.usefixtures("context")


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
