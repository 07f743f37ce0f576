"""What a worker holds of a submission, and what it does with it on request. Student Python is imported when called."""

import importlib
import pkgutil
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import given
import ml_dtypes  # noqa: F401  # gives NumPy the dtype "bfloat16"
import pycuda
from given import ops
from pycuda import driver

from grader.worker.received_arguments import ReceivedArguments
from grader.worker.returned_value import ReturnedValue

Answer = tuple[dict[str, Any], list[bytes]]
"""The header, and the parts of the payload."""


class Submission:
    """One engine folder, its device context and the objects that calls left; requests name its methods as verbs."""

    def __init__(self, engine: Path, emulated: bool) -> None:
        self.driver = driver
        self.objects: list[Any] = []
        self.kept: list[Any] = []
        """Device arrays of the last call: the next ones get other addresses."""
        self._engine = engine
        self._emulated = emulated
        driver.init()
        device = driver.Device(0)
        context = device.retain_primary_context()
        context.push()
        # A student's `import pycuda.autoinit` joins this context; another one would not see our arrays.
        autoinit = types.ModuleType("pycuda.autoinit")
        autoinit.__dict__.update(device=device, context=context)
        sys.modules["pycuda.autoinit"] = pycuda.autoinit = autoinit
        given.configure(engine)

    def describe_array(self, address: int, size: int, is_written: bool) -> None:
        """Tell the emulator where an array lies between its red zones, and whether it holds anything yet."""
        if self._emulated:
            from pycuda import _connection  # noqa: PLC0415  (the emulated PyCUDA alone has it)

            _connection.current("cuMemAlloc").describe_array(address, size, is_written)

    def launch(self, header: Mapping[str, Any], payload: memoryview) -> Answer:
        """Run one launcher; with `repeats`, also the mean seconds of this many further launches.

        Each of these begins with the outputs as they were sent; of outputs that differ from the first ones, those
        are returned.
        """
        sent = ReceivedArguments(self, payload)
        launcher = getattr(ops, header["op"])
        arguments = [sent.decode(node) for node in header["arguments"]]
        launcher(*arguments)
        self.driver.Context.synchronize()
        after, seconds = sent.read_back(), []
        for _ in range(header["repeats"]):
            sent.restore_outputs()
            seconds.append(self._seconds(lambda: launcher(*arguments)))
            if (again := sent.read_back()) != after:
                after = again
                break
        answer: dict[str, Any] = {"ok": True, "sparse": sent.sparse}
        if seconds:
            answer["seconds"] = sum(seconds) / len(seconds)
        return answer, [after]

    def copy(self, header: Mapping[str, Any], payload: memoryview) -> Answer:
        """Time copies of some bytes from one place on the device to another: the mean seconds after a first one."""
        source, target = (self.driver.mem_alloc(header["bytes"]) for _ in range(2))

        def copy() -> None:
            self.driver.memcpy_dtod_async(target, source, header["bytes"])

        copy()
        seconds = [self._seconds(copy) for _ in range(header["repeats"])]
        return {"ok": True, "seconds": sum(seconds) / len(seconds)}, []

    def call(self, header: Mapping[str, Any], payload: memoryview) -> Answer:
        """Call a function of the engine, or a method of an object that an earlier call returned."""
        sent = ReceivedArguments(self, payload)
        function = self._function(header["target"])
        keywords = {name: sent.decode(node) for name, node in header["keywords"].items()}
        value = function(*[sent.decode(node) for node in header["arguments"]], **keywords)
        result = ReturnedValue(self.objects, header["limit"])
        tree = result.keep(value) if header["keep"] else result.encode(value)
        self.driver.Context.synchronize()
        return {"ok": True, "result": tree}, [sent.read_back(), *result.parts.pieces]

    def release(self, header: Mapping[str, Any], payload: memoryview) -> Answer:
        """Forget what calls left, also in variables of kernels."""
        self.objects.clear()
        self.kept.clear()
        ops.unload()
        return {"ok": True}, []

    def _seconds(self, launch: Callable[[], None]) -> float:
        """Seconds of one launch, by the device's clock."""
        start, end = self.driver.Event(), self.driver.Event()
        start.record()
        launch()
        end.record()
        end.synchronize()
        return float(end.time_since(start)) / 1000

    def _function(self, target: list[Any]) -> Callable[..., Any]:
        if len(target) == 2:
            return getattr(self.objects[target[0]], target[1])
        if ":" in target[0]:
            return pkgutil.resolve_name(target[0])
        parent = str(self._engine.parent)
        if parent not in sys.path:
            sys.path.append(parent)
        module, _, name = target[0].partition(".")
        function = getattr(importlib.import_module(f"engine.{module}"), name, None)
        if not callable(function):
            raise AttributeError(f"engine/{module}.py defines no {name}")
        return function
