"""Modules of compiled kernels and the functions in them: limits are checked here, the launch is one message."""

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from grader.ipc.framing import encode_header, pack_frame
from pycuda import _driver, refuse
from pycuda._arguments import ArgumentHandler, In, InOut, Out, Signature, packing_error, prepared_format  # noqa: F401
from pycuda._connection import current
from pycuda._driver import INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, failure, function_attribute, refuse_call
from pycuda._memory import Stream, check_stream

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
DEFAULT_SHARED_LIMIT = 48 << 10
_SELF = "pycuda::function {lvalue}"


class Module:
    """The kernels and variables of one compiled source."""

    def __init__(self, compiled: Mapping[str, Any]) -> None:
        self._compiled = compiled
        for pointer, size in compiled["constants"].values():
            if size:
                current("cuModuleLoadDataEx").register(pointer, size)

    def get_function(self, name: str) -> "Function":
        """Raises LogicError when no kernel is declared extern "C" under this name."""
        if not isinstance(name, str):
            signature = "get_function(pycuda::module {lvalue} self, char const* name)"
            refuse_call("Module.get_function", (self, name), signature)
        current("cuModuleGetFunction")
        if name not in self._compiled["kernels"]:
            raise failure("cuModuleGetFunction", NOT_FOUND)
        return Function(self._compiled["module"], name, self._compiled["kernels"][name])

    def get_global(self, name: str) -> tuple[int, int]:
        """(address, bytes) of a __constant__ or __device__ variable."""
        current("cuModuleGetGlobal")
        if name not in self._compiled["constants"]:
            raise failure("cuModuleGetGlobal", NOT_FOUND)
        return tuple(self._compiled["constants"][name])

    def __getattr__(self, name: str) -> NoReturn:
        refuse("pycuda.driver.Module", name)


class Function:
    """A kernel that can be called: plainly, or prepared once for its argument types and then called for less."""

    def __init__(self, module: int, name: str, description: Mapping[str, Any]) -> None:
        self._name = name
        self._message = {"verb": "launch", "module": module, "kernel": name}
        self._signature = Signature(name, description["arguments"])
        self._shared_static: int = description["shared_static"]
        self._shared_limit = DEFAULT_SHARED_LIMIT - self._shared_static
        self._max_threads: int = description["max_threads"]
        self._pack: Callable[..., bytes] = self._unprepared
        self._last: tuple[Any, Any, Any, bytes] = (None, None, None, b"")  # grid, block, shared and their message

    def __call__(
        self, *args: Any, grid: Any = (1, 1), stream: Stream | None = None, block: Any = None, shared: int = 0,
        texrefs: Sequence[Any] = (), time_kernel: bool = False, **unknown: Any,
    ) -> float | None:  # fmt: skip
        """Launch with NumPy scalars, DeviceAllocations, GPUArrays and In, Out, InOut arrays as arguments.

        With `time_kernel` returns the seconds that the launch took.
        """
        if unknown:
            raise ValueError(f"extra keyword arguments: {','.join(unknown)}")
        if block is None:
            raise ValueError("must specify block size")
        self._set_block_shape(*block)
        payload = self._signature.pack(args)
        handlers = [argument for argument in args if isinstance(argument, ArgumentHandler)]
        for handler in handlers:
            handler.pre_call(stream)
        assert stream is None or not time_kernel, "Can't time the kernel on an asynchronous invocation"
        if time_kernel:
            current("cuCtxSynchronize").synchronize("cuCtxSynchronize")
        start = time.perf_counter()
        self._launch_kernel(grid, block, payload, shared, stream)
        if time_kernel:
            current("cuCtxSynchronize").synchronize("cuCtxSynchronize")
        seconds = time.perf_counter() - start
        for handler in handlers:
            handler.post_call(stream)
        return seconds if time_kernel else None

    def prepare(self, arg_types: Any, texrefs: Sequence[Any] = ()) -> "Function":
        """Fix the argument types: a format such as "PPif", or a list of NumPy types and format characters."""
        self.arg_format = "".join([prepared_format(kind) for kind in arg_types])
        try:
            self._pack = self._signature.packer(self.arg_format)
        except (TypeError, struct.error) as error:
            problem = error

            def fail(*args: Any) -> NoReturn:  # a mistake of the call, and raised by it
                raise problem

            self._pack = fail
        return self

    def prepared_call(self, grid: Any, block: Any, *args: Any, shared_size: int = 0, **unknown: Any) -> None:
        """Launch; `args` are Python numbers, DeviceAllocations or addresses."""
        self.prepared_async_call(grid, block, None, *args, shared_size=shared_size, **unknown)

    def prepared_async_call(
        self, grid: Any, block: Any, stream: Stream | None, *args: Any, shared_size: int = 0, **unknown: Any
    ) -> None:
        if unknown:
            raise TypeError(f"unknown keyword arguments: {', '.join(unknown)}")
        try:
            payload = self._pack(*args)
        except (struct.error, OverflowError) as error:
            raise packing_error(self.arg_format, args, error) from None
        self._launch_kernel(grid, block, payload, shared_size, stream)

    def prepared_timed_call(self, grid: Any, block: Any, *args: Any, **keywords: Any) -> Callable[[], float]:
        """Launch; what is returned waits for the end and gives the seconds."""
        from pycuda.driver import Event  # noqa: PLC0415  (driver imports this module)

        start, end = Event().record(), Event()
        self.prepared_call(grid, block, *args, **keywords)
        end.record()
        return lambda: end.synchronize().time_since(start) * 1e-3

    def _unprepared(self, *args: Any) -> NoReturn:
        raise AttributeError("type object 'function_attribute' has no attribute 'ARG_FORMAT': call prepare first")

    def _launch_kernel(self, grid: Any, block: Any, payload: bytes, shared: Any, stream: Stream | None) -> None:
        if stream is not None:
            check_stream(stream)
        last_grid, last_block, last_shared, header = self._last
        if grid is not last_grid or block is not last_block or shared is not last_shared:
            header = self._header(grid, block, shared)
            self._last = grid, block, shared, header
        current("cuLaunchKernel").send_frame(pack_frame(header, payload))

    def _header(self, grid: Any, block: Any, shared: Any) -> bytes:
        """The launch message for these dimensions, which are checked as PyCUDA and the driver check them."""
        if not (isinstance(grid, tuple) and isinstance(block, tuple) and isinstance(shared, int)):
            signature = f"_launch_kernel({_SELF}, tuple, tuple, object, unsigned int, object)"
            refuse_call("Function._launch_kernel", (self, grid, block, b"", shared, None), signature)
        self._set_block_shape(*block)
        for extent in grid:
            if not isinstance(extent, int):
                _driver.refuse_value(extent, "unsigned int")
        if len(grid) > 3:
            detail = "too many grid dimensions in kernel launch"
            raise failure("function::launch_kernel", INVALID_HANDLE, detail=detail)
        extents = [_driver.integer(extent, "unsigned int") for extent in grid] + [1] * (3 - len(grid))
        detail = ""
        if not all(1 <= extent <= limit for extent, limit in zip(extents, MAX_GRID, strict=True)):
            detail = f"grid {tuple(extents)}: each extent is at least 1, at most {MAX_GRID}"
        elif _driver.integer(shared, "unsigned int") > self._shared_limit:
            detail = f"{shared} bytes of dynamic shared memory, {self._name} may use {self._shared_limit}; for more, "
            detail += "set_attribute(function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)"
        if detail:
            raise failure("cuLaunchKernel", INVALID_VALUE, detail=detail)
        return encode_header(self._message | {"grid": extents, "block": list(map(int, block)), "shared": int(shared)})

    def _set_block_shape(self, *block: Any) -> None:
        if len(block) != 3 or not all(isinstance(extent, int) for extent in block):
            signature = f"_set_block_shape({_SELF}, int, int, int)"
            refuse_call("Function._set_block_shape", (self, *block), signature)
        fits = all(1 <= _driver.integer(extent, "int") <= limit for extent, limit in zip(block, MAX_BLOCK, strict=True))
        if not fits or block[0] * block[1] * block[2] > self._max_threads:
            detail = f"block {block}: {self._name} takes 1 to {self._max_threads} threads, at most {MAX_BLOCK}"
            raise failure("cuFuncSetBlockShape", INVALID_VALUE, detail=detail)

    def get_attribute(self, attribute: Any) -> int:
        """What the kernel needs and may use; the emulated device counts no registers and no local memory: 0."""
        if not isinstance(attribute, function_attribute):
            signature = f"get_attribute({_SELF}, CUfunction_attribute_enum)"
            refuse_call("Function.get_attribute", (self, attribute), signature)
        known = {"SHARED_SIZE_BYTES": self._shared_static, "MAX_DYNAMIC_SHARED_SIZE_BYTES": self._shared_limit}
        known |= {"MAX_THREADS_PER_BLOCK": self._max_threads, "PTX_VERSION": 86, "BINARY_VERSION": 86}
        return known.get(attribute.name, 0)

    def set_attribute(self, attribute: Any, value: int) -> None:
        """MAX_DYNAMIC_SHARED_SIZE_BYTES allows so many bytes a block; raises LogicError above the device's limit."""
        if not (isinstance(attribute, function_attribute) and isinstance(value, int)):
            signature = f"set_attribute({_SELF}, CUfunction_attribute_enum, int)"
            refuse_call("Function.set_attribute", (self, attribute, value), signature)
        properties = current("cuFuncSetAttribute").properties["attributes"]
        limit = properties["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"] - self._shared_static
        if attribute.name == "MAX_DYNAMIC_SHARED_SIZE_BYTES" and 0 <= value <= limit:
            self._shared_limit = value
        elif attribute.name != "PREFERRED_SHARED_MEMORY_CARVEOUT":
            raise failure("cuFuncSetAttribute", INVALID_VALUE, detail=f"{value} bytes, the most here is {limit}")

    def set_cache_config(self, config: Any) -> None:
        """A hint to the hardware, of which there is none."""

    def __getattr__(self, name: str) -> int:
        if name.upper() not in function_attribute.__members__:
            raise AttributeError(f"type object 'function_attribute' has no attribute '{name.upper()}'")
        return self.get_attribute(function_attribute[name.upper()])
