"""pycuda.gpuarray: arrays in device memory, copied, viewed and filled here; arithmetic on them is not emulated."""

import functools
import math
import warnings
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from pycuda import KNOWN_NAMES, driver, refuse
from pycuda._connection import current

__getattr__ = functools.partial(refuse, "pycuda.gpuarray")
_NOT_CONTIGUOUS = "only contiguous arrays may be used as arguments to this operation"


ArrayFlags = namedtuple("ArrayFlags", "c_contiguous f_contiguous forc")  # forc: either order


def _packed(itemsize: int, shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """Strides without gaps; the axes in `order` go from the fastest to the slowest."""
    strides = [0] * len(shape)
    for axis in order:
        strides[axis] = itemsize
        itemsize *= shape[axis]
    return strides


def _packed_like(array: Any) -> list[int]:
    """Strides without gaps, with the axes of `array` in its own order."""
    order = sorted(range(array.ndim), key=lambda axis: (array.strides[axis], array.shape[axis], axis))
    return _packed(array.itemsize, array.shape, order)


class GPUArray:
    """An array in device memory. Views share `gpudata` and keep their origin alive through `base`.

    `gpudata` is a DeviceAllocation, in a view an int, in an empty array None; `strides` are in bytes.
    """

    __array_priority__ = 100

    def __init__(
        self, shape: Any, dtype: Any, allocator: Callable[[int], Any] = driver.mem_alloc, base: Any = None,
        gpudata: Any = None, strides: Sequence[int] | None = None, order: str = "C",
    ) -> None:  # fmt: skip
        if np.ndim(shape) == 0:
            assert isinstance(shape, int | np.integer | np.ndarray)
            shape = (int(shape),)
        size = math.prod(shape)
        self.size = self.mem_size = int(size) if isinstance(size, np.integer) else size
        self.shape = tuple([int(extent) for extent in shape])
        self.ndim = len(self.shape)
        self.dtype = np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self.nbytes = self.itemsize * self.size
        if strides is None:
            if order not in ("C", "F"):
                raise ValueError(f"invalid order: {order}")
            strides = _packed(self.itemsize, self.shape, range(self.ndim)[:: 1 if order == "F" else -1])
        self.strides = tuple([int(stride) for stride in strides])
        self.allocator = allocator
        self.base = base
        if gpudata is None:
            assert base is None
            gpudata = allocator(self.nbytes) if self.size else None
        self.gpudata = gpudata

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (int(self.gpudata) if self.gpudata is not None else 0, False)
        typestr = self.dtype.str
        return {
            "shape": self.shape,
            "strides": self.strides,
            "data": data,
            "typestr": typestr,
            "stream": None,
            "version": 3,
        }

    @property
    def ptr(self) -> int:
        return self.gpudata.__int__()

    @property
    def flags(self) -> ArrayFlags:
        axes = range(self.ndim)
        packed = [_packed(self.itemsize, self.shape, order) for order in (axes[::-1], axes)]
        c, f = (all(self.shape[a] <= 1 or self.strides[a] == strides[a] for a in axes) for strides in packed)
        return ArrayFlags(c, f, c or f)

    # Copies

    def set(self, ary: np.ndarray, async_: bool = False, stream: driver.Stream | None = None) -> None:
        """Copy a host array of this size and dtype here."""
        if ary.size != self.size:
            raise ValueError("ary and self must be the same size")
        if ary.shape != self.shape:
            warnings.warn("Setting array from one with different shape.", stacklevel=2)
            ary = ary.reshape(self.shape)
        if ary.dtype != self.dtype:
            raise ValueError("ary and self must have the same dtype")
        if self.size:
            _copy(self, ary)

    def set_async(self, ary: np.ndarray, stream: driver.Stream | None = None) -> None:
        self.set(ary)

    def get(
        self, ary: np.ndarray | None = None, pagelocked: bool = False, async_: bool = False,
        stream: driver.Stream | None = None,
    ) -> np.ndarray:  # fmt: skip
        """The contents as a host array, a new one unless `ary` is given."""
        if ary is None:
            empty = driver.pagelocked_empty if pagelocked else np.empty
            ary = np.lib.stride_tricks.as_strided(empty(self.shape, self.dtype), strides=_packed_like(self))
        if self.size != ary.size:
            raise ValueError("self and ary must be the same size")
        if self.shape != ary.shape:
            text = "get() between arrays of different shape is deprecated and will be removed in PyCUDA 2017.x"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            ary = ary.reshape(self.shape)
        if self.dtype != ary.dtype:
            raise TypeError("self and ary must have the same dtype")
        if self.size:
            _copy(ary, self)
        return ary

    def get_async(self, stream: driver.Stream | None = None, ary: np.ndarray | None = None) -> np.ndarray:
        return self.get(ary)

    def copy(self) -> "GPUArray":
        new = GPUArray(self.shape, self.dtype, self.allocator, strides=self.strides)
        if self.size:
            _copy(new, self)
        return new

    def fill(self, value: Any, stream: driver.Stream | None = None) -> "GPUArray":
        """Set every element of a contiguous array."""
        if not self.flags.forc:
            raise RuntimeError(_NOT_CONTIGUOUS)
        bits = np.full((), value, self.dtype).tobytes()
        memsets = {1: driver.memset_d8, 2: driver.memset_d16, 4: driver.memset_d32}
        if self.size and self.itemsize in memsets:
            memsets[self.itemsize](self.ptr, int.from_bytes(bits, "little"), self.size)
        elif self.size:
            driver.memcpy_htod(self.ptr, bits * self.size)
        return self

    # Views

    def _view(
        self, shape: Sequence[int], strides: Any, offset: int = 0, dtype: Any = None, order: str = "C"
    ) -> "GPUArray":
        pointer = int(self.gpudata) + offset
        return GPUArray(shape, dtype or self.dtype, self.allocator, self, pointer, strides, order)

    def reshape(self, *shape: Any, order: str = "C") -> "GPUArray":
        """A view of another shape; one extent may be -1."""
        flags = self.flags
        if not flags.forc:
            raise RuntimeError(_NOT_CONTIGUOUS)
        if isinstance(shape[0], tuple | list):
            shape = tuple(shape[0])
        if shape == self.shape and (flags.c_contiguous if order == "C" else flags.f_contiguous):
            return self
        if shape.count(-1) > 1:
            raise ValueError("can only specify one unknown dimension")
        if -1 in shape:
            missing = self.size // -math.prod(shape)
            shape = tuple(missing if extent == -1 else extent for extent in shape)
        if math.prod(shape) != self.size:
            raise ValueError("total size of new array must be unchanged")
        return self._view(shape, None, order=order)

    def ravel(self) -> "GPUArray":
        return self.reshape(self.size)

    def view(self, dtype: Any = None) -> "GPUArray":
        """The same bytes as another dtype; the fastest axis grows or shrinks."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        axis = min(range(self.ndim), key=lambda axis: abs(self.strides[axis]))
        shape, strides = list(self.shape), list(self.strides)
        if shape[axis] * self.itemsize % dtype.itemsize:
            raise ValueError("new type not compatible with array")
        shape[axis] = shape[axis] * self.itemsize // dtype.itemsize
        strides[axis] = strides[axis] * dtype.itemsize // self.itemsize
        return self._view(shape, strides, dtype=dtype)

    def __getitem__(self, index: Any) -> "GPUArray":
        """A view, by integers, slices, Ellipsis and newaxis.

        As in PyCUDA a slice that ends before it starts is not empty: a[5:2] has three elements, from index 5 on.
        """
        entries = list(index) if isinstance(index, tuple) else [index]
        places = [place for place, entry in enumerate(entries) if entry is Ellipsis]
        if len(places) > 1:
            raise IndexError("more than one ellipsis not allowed in index")
        for place in places:
            missing = self.ndim + 1 - sum(entry is not None for entry in entries)
            entries[place : place + 1] = [slice(None)] * missing
        shape: list[int] = []
        strides: list[int] = []
        offset = axis = 0
        for place, entry in enumerate(entries):
            if entry is None:
                shape.append(1)
                strides.append(0)
                continue
            extent, stride = self.shape[axis], self.strides[axis]  # IndexError: more indices than axes
            axis += 1
            if isinstance(entry, slice):
                start, stop, step = entry.indices(extent)
                shape.append((abs(stop - start) - 1) // abs(step) + 1)
                strides.append(step * stride)
                offset += start * stride
            elif not isinstance(entry, int | np.integer):
                raise IndexError(f"invalid subindex in axis {place}")
            elif not -extent <= entry < extent:
                raise IndexError(f"subindex in axis {place} out of range")
            else:
                offset += stride * (int(entry) % extent)
        return self._view([*shape, *self.shape[axis:]], [*strides, *self.strides[axis:]], offset)

    def __setitem__(self, index: Any, value: Any) -> None:
        view = self[index]
        if np.isscalar(value):
            view.fill(value)
        else:
            _copy(view, value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __hash__(self) -> NoReturn:  # type: ignore[override]
        raise TypeError("GPUArrays are not hashable.")


for _name in KNOWN_NAMES["pycuda.gpuarray.GPUArray"]:
    _refusal = functools.partial(lambda name, *arguments: refuse("pycuda.gpuarray.GPUArray", name), _name)
    setattr(GPUArray, _name, _refusal if _name.startswith("__") else property(_refusal))


def _copy(target: Any, source: Any) -> None:
    """Copy between arrays of which at least one is on the device.

    Contiguous arrays are copied in their order in memory, so C order onto Fortran order permutes the elements.
    """
    for name, array in (("src", source), ("dst", target)):
        if not isinstance(array, GPUArray | np.ndarray):
            raise TypeError(f"{name} must be GPUArray or ndarray")
    if source.shape != target.shape:
        raise ValueError("src and dst must be same shape")
    if source.dtype != target.dtype:
        raise TypeError("src and dst must have same dtype")
    if not (target.flags.forc and source.flags.forc):
        _copy_strided(target, source)
    elif isinstance(target, np.ndarray):
        driver.memcpy_dtoh(target, source.ptr)
    elif isinstance(source, np.ndarray):
        driver.memcpy_htod(target.ptr, source)
    else:
        driver.memcpy_dtod(target.ptr, source.ptr, source.nbytes)


def _copy_strided(target: Any, source: Any) -> None:
    axes = [axis for axis in range(source.ndim) if source.shape[axis] > 1]
    ordered = [target.strides[axis] for axis in sorted(axes, key=source.strides.__getitem__)]
    if ordered != sorted(ordered):
        raise ValueError("src and dst must have same order")
    if min((*source.strides, *target.strides)) < 0:
        raise OverflowError("can't convert negative value to unsigned int")
    _in_numpy(target, "device")[...] = _in_numpy(source, "host")


def _in_numpy(array: Any, to: str) -> np.ndarray:
    """A NumPy view of an array for a copy `to` "device" or "host", on the device too, once all work before is done."""
    if isinstance(array, np.ndarray):
        return array
    span = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
    memory = current("cuMemcpy2D").bytes_to_copy("cuMemcpy2D", array.ptr, span + array.itemsize, to)
    return np.ndarray(array.shape, array.dtype, memory, strides=array.strides)


empty = GPUArray


def to_gpu(ary: np.ndarray, allocator: Any = driver.mem_alloc) -> GPUArray:
    """A copy of a host array on the device."""
    result = GPUArray(ary.shape, ary.dtype, allocator, strides=_packed_like(ary))
    result.set(ary)
    return result


def to_gpu_async(ary: np.ndarray, allocator: Any = driver.mem_alloc, stream: driver.Stream | None = None) -> GPUArray:
    return to_gpu(ary, allocator)


def zeros(shape: Any, dtype: Any = np.float64, allocator: Any = driver.mem_alloc, order: str = "C") -> GPUArray:
    """float64 unless said otherwise, as in NumPy and PyCUDA."""
    return GPUArray(shape, dtype, allocator, order=order).fill(0)


def ones(shape: Any, dtype: Any = np.float64, allocator: Any = driver.mem_alloc, order: str = "C") -> GPUArray:
    return GPUArray(shape, dtype, allocator, order=order).fill(1)


def empty_like(other_ary: GPUArray, dtype: Any = None, order: str = "K") -> GPUArray:
    """`order` K keeps the other array's, A too where it is contiguous."""
    dtype = other_ary.dtype if dtype is None else np.dtype(dtype)
    strides = None
    if order in ("A", "K"):
        flags = other_ary.flags
        if order == "K" and not flags.forc and other_ary.ndim > 1:
            strides = [abs(stride) * dtype.itemsize // other_ary.itemsize for stride in other_ary.strides]
        order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
    elif order not in ("C", "F"):
        raise ValueError(f"Unsupported order: {order!r}")
    return GPUArray(other_ary.shape, dtype, other_ary.allocator, order=order, strides=strides)


def zeros_like(other_ary: GPUArray, dtype: Any = None, order: str = "K") -> GPUArray:
    return empty_like(other_ary, dtype, order).fill(0)


def ones_like(other_ary: GPUArray, dtype: Any = None, order: str = "K") -> GPUArray:
    return empty_like(other_ary, dtype, order).fill(1)
