"""The untrusted side: one process that launches a submission's kernels and runs its Python, as the grader asks.

Run by grader/process.py as a script, with the number of its socket and "emulated" or "gpu". It holds no seed, no
expected value and no score: it gets inputs and returns bytes. Student Python is imported only when it is called.
"""

import ctypes
import importlib
import importlib.util
import math
import os
import pkgutil
import resource
import signal
import socket
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

GRADER = Path(__file__).resolve().parent
MAX_REQUEST = 4 << 30
MAX_TEXT = 64_000
PR_SET_PDEATHSIG = 1


def load_package(name: str, folder: Path) -> None:
    """Make one package importable without its neighbours: what lies beside it stays out of the submission's reach."""
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


class Submission:
    """One engine folder, its device context and the objects that calls left behind."""

    def __init__(self, engine: Path, emulated: bool) -> None:
        import given
        import ml_dtypes  # noqa: F401  # gives NumPy the dtype "bfloat16"
        import pycuda
        import pycuda.driver as driver

        self.engine = engine
        self.emulated = emulated
        self.driver = driver
        self.objects: list[Any] = []
        self.kept: list[Any] = []  # device arrays of the last call: the next ones get other addresses
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
        if self.emulated:
            from pycuda import _connection

            _connection.current("cuMemAlloc").describe_array(address, size, is_written)

    def launch(self, header: Mapping[str, Any], payload: memoryview) -> tuple[dict[str, Any], list[bytes]]:
        """Run one launcher; with `repeats`, also the mean seconds of so many further launches."""
        from given import ops

        sent = Arguments(self, payload)
        launcher = getattr(ops, header["op"])
        arguments = [sent.decode(node) for node in header["arguments"]]
        launcher(*arguments)
        self.driver.Context.synchronize()
        answer: dict[str, Any] = {"ok": True}
        if header["repeats"]:
            answer["seconds"] = self._seconds(lambda: launcher(*arguments), header["repeats"])
        answer["sparse"] = sent.sparse
        return answer, [sent.read_back()]

    def copy(self, header: Mapping[str, Any], payload: memoryview) -> tuple[dict[str, Any], list[bytes]]:
        """Time copies of some bytes from one place on the device to another: the mean seconds after a first one."""
        source, target = (self.driver.mem_alloc(header["bytes"]) for _ in range(2))

        def copy() -> None:
            self.driver.memcpy_dtod_async(target, source, header["bytes"])

        copy()
        return {"ok": True, "seconds": self._seconds(copy, header["repeats"])}, []

    def _seconds(self, launch: Callable[[], None], repeats: int) -> float:
        start, end = self.driver.Event(), self.driver.Event()
        start.record()
        for _ in range(repeats):
            launch()
        end.record()
        end.synchronize()
        return float(end.time_since(start)) / 1000 / repeats

    def call(self, header: Mapping[str, Any], payload: memoryview) -> tuple[dict[str, Any], list[bytes]]:
        """Call a function of the engine, or a method of an object that an earlier call returned."""
        sent = Arguments(self, payload)
        function = self._function(header["target"])
        keywords = {name: sent.decode(node) for name, node in header["keywords"].items()}
        value = function(*[sent.decode(node) for node in header["arguments"]], **keywords)
        result = Result(self, header["limit"])
        tree = result.keep(value) if header["keep"] else result.encode(value)
        self.driver.Context.synchronize()
        return {"ok": True, "result": tree}, [sent.read_back(), *result.parts]

    def _function(self, target: list[Any]) -> Callable[..., Any]:
        if len(target) == 2:
            return getattr(self.objects[target[0]], target[1])
        if ":" in target[0]:
            return pkgutil.resolve_name(target[0])
        parent = str(self.engine.parent)
        if parent not in sys.path:
            sys.path.append(parent)
        module, _, name = target[0].partition(".")
        function = getattr(importlib.import_module(f"engine.{module}"), name, None)
        if not callable(function):
            raise AttributeError(f"engine/{module}.py defines no {name}")
        return function

    def release(self, header: Mapping[str, Any], payload: memoryview) -> tuple[dict[str, Any], list[bytes]]:
        self.objects.clear()
        self.kept.clear()
        return {"ok": True}, []


class Arguments:
    """Rebuilds the arguments of a request, device arrays on the device, and reads all arrays back after the call."""

    def __init__(self, submission: Submission, payload: memoryview) -> None:
        self.submission = submission
        self.payload = payload
        self.host: list[tuple[int, Any]] = []
        self.device: list[tuple[int, int, int]] = []
        """What was copied to the device: begin and end in the payload, address."""
        self.allocations: list[Any] = []
        self.sparse: list[int] = []
        """Addresses of the sparse arrays, in order."""

    def decode(self, node: Mapping[str, Any]) -> Any:
        ((kind, value),) = node.items()
        if kind == "value":
            return value
        if kind == "handle":
            return self.submission.objects[value]
        if kind == "config":
            return _config(value)
        if kind == "sampling":
            return _sampling({name: self.decode(field) for name, field in value.items()})
        if kind == "dict":
            return {key: self.decode(entry) for key, entry in value}
        if kind in ("list", "tuple"):
            return (list if kind == "list" else tuple)(self.decode(entry) for entry in value)
        return self._array(*value) if kind == "array" else self._sparse(*value)

    def _array(self, dtype: str, shape: list[int], offset: int, zone: int, is_written: bool) -> Any:
        import numpy as np

        size = _size(dtype, shape)
        if not zone:
            array = np.frombuffer(self.payload[offset : offset + size], dtype).reshape(shape).copy()
            self.host.append((offset, array))
            return array
        address = self._allocate(size + 2 * zone)
        self._upload(offset, size + 2 * zone, address)
        self.submission.describe_array(address + zone, size, is_written)
        return self._device_array(dtype, shape, address + zone)

    def _sparse(self, dtype: str, shape: list[int], offset: int, zone: int, rows: list[int]) -> Any:
        """A device array of zeros, but for some rows and the red zones, which follow one another in the payload."""
        size, row = _size(dtype, shape), _size(dtype, shape[1:])
        address = self._allocate(size + 2 * zone)
        self.submission.driver.memset_d8(address, 0, size + 2 * zone)
        in_between = [(row, address + zone + number * row) for number in rows]
        pieces = [(zone, address), *in_between, (zone, address + zone + size)]
        for length, target in pieces:
            self._upload(offset, length, target)
            offset += length
        self.sparse.append(address + zone)
        self.submission.describe_array(address + zone, size, True)
        return self._device_array(dtype, shape, address + zone)

    def _allocate(self, size: int) -> int:
        self.allocations.append(self.submission.driver.mem_alloc(size))
        return int(self.allocations[-1])

    def _upload(self, offset: int, size: int, address: int) -> None:
        """Copy a part of the payload, which `read_back` copies back."""
        self.submission.driver.memcpy_htod(address, self.payload[offset : offset + size])
        self.device.append((offset, offset + size, address))

    def _device_array(self, dtype: str, shape: list[int], address: int) -> Any:
        import numpy as np
        from pycuda.gpuarray import GPUArray

        return GPUArray(tuple(shape), np.dtype(dtype), base=self.allocations[-1], gpudata=address)

    def read_back(self) -> bytes:
        """The request's payload as it is after the call."""
        after = bytearray(self.payload)
        for offset, array in self.host:
            after[offset : offset + array.nbytes] = array.tobytes()
        for begin, end, address in self.device:
            self.submission.driver.memcpy_dtoh(memoryview(after)[begin:end], address)
        self.submission.kept = self.allocations
        return bytes(after)


class Result:
    """Encodes what a call returned as a tree; arrays become bytes, other objects stay here under a number."""

    def __init__(self, submission: Submission, limit: int) -> None:
        self.submission = submission
        self.limit = limit
        self.size = 0
        self.parts: list[bytes] = []
        self.known: dict[int, tuple[list[Any], Any]] = {}  # an array in two places travels once

    def encode(self, value: Any) -> dict[str, Any]:
        import numpy as np
        from pycuda.gpuarray import GPUArray

        if value is None or type(value) in (bool, int, float, str):
            return {"value": value}
        if isinstance(value, GPUArray):
            return {"array": self._array(value.get())}
        if isinstance(value, np.ndarray):
            if id(value) not in self.known:  # the array is kept too, so that no other gets its id
                self.known[id(value)] = self._array(value), value
            return {"array": self.known[id(value)][0]}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value))}
        if isinstance(value, Mapping):
            return {"dict": [[str(key), self.encode(value[key])] for key in value]}
        if isinstance(value, list | tuple):
            return {"list" if isinstance(value, list) else "tuple": [self.encode(entry) for entry in value]}
        return self.keep(value)

    def keep(self, value: Any) -> dict[str, Any]:
        """The object stays here."""
        self.submission.objects.append(value)
        return {"handle": [len(self.submission.objects) - 1, type(value).__name__]}

    def _array(self, array: Any) -> list[Any]:
        if array.dtype.kind not in "biufV":  # V: NumPy's kind for bfloat16
            raise TypeError(f"the call returned an array of dtype {array.dtype}")
        node = [array.dtype.name, list(array.shape), self.size]
        self.size += array.nbytes
        if self.size > self.limit:
            raise ValueError(f"the call returned {self.size} bytes or more; at most {self.limit} are right")
        self.parts.append(array.tobytes())
        return node


def _size(dtype: str, shape: list[int]) -> int:
    """Bytes of an array."""
    import numpy as np

    return math.prod(shape) * np.dtype(dtype).itemsize


def _config(fields: dict[str, Any]) -> Any:
    from given.config import Llama3RopeScaling, LlamaConfig

    scaling = fields["rope_scaling"]
    fields["rope_scaling"] = scaling and Llama3RopeScaling(**scaling)
    return LlamaConfig(**{**fields, "eos_token_ids": tuple(fields["eos_token_ids"])})


def _sampling(fields: dict[str, Any]) -> Any:
    from given.requests import SamplingParams

    return SamplingParams(**fields)


def describe(error: BaseException, engine: Path) -> dict[str, Any]:
    """An exception as plain data: its classes, text, the student's last line in it, the compiler's output."""
    names = [kind.__name__ for kind in type(error).__mro__]
    is_compile_error = "CompileError" in names
    try:
        text = str(error.msg if is_compile_error else error)  # type: ignore[attr-defined]
        log = str(error.stderr or "") if is_compile_error else ""  # type: ignore[attr-defined]
    except BaseException as fault:  # student code may run here
        text, log = f"(its text cannot be made: {type(fault).__name__})", ""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    where = [f"{Path(f).relative_to(engine)}:{line}" for f, line in places if Path(f).is_relative_to(engine)]
    on_device = any(kind.__module__.startswith("pycuda") for kind in type(error).__mro__)
    return {
        "types": names[:16],
        "text": text[-MAX_TEXT:],
        "where": where[-1] if where else "",
        "log": log[:MAX_TEXT],
        "device": on_device and not is_compile_error,
    }


def end_with_grader() -> None:
    """Let Linux kill this process when the grader is killed, also in the middle of a loop that never ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end_with_grader()
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    load_package("grader", GRADER)
    emulated = sys.argv[2] == "emulated"
    if emulated:
        sys.path.insert(0, str(GRADER / "emulator" / "client"))
    from grader.ipc.framing import encode_header, pack_frame, receive_frame, send_frame

    hello, _ = receive_frame(connection, MAX_TEXT, 0)
    engine = Path(hello["engine"])
    try:
        submission = Submission(engine, emulated)
    except Exception:
        send_frame(connection, {"error": traceback.format_exc()})
        return
    send_frame(connection, {"ok": True})
    while True:
        header, payload = receive_frame(connection, MAX_REQUEST, MAX_REQUEST)
        try:
            answer, parts = getattr(submission, header["verb"])(header, memoryview(payload))
            encoded = encode_header(answer)
        except BaseException as error:  # SystemExit and KeyboardInterrupt of student code too
            encoded, parts = encode_header({"error": describe(error, engine)}), []
        connection.settimeout(None)
        connection.sendall(pack_frame(encoded, b"".join(parts)))


if __name__ == "__main__":
    try:
        main()
    except (EOFError, OSError):  # the grader closed the connection: the end
        os._exit(0)
