"""What the emulated GPU does for each message of its client and of its owner; process.py describes the messages."""

import contextlib
import ctypes
import json
import socket
import time
from typing import Any

from grader.emulator.arena import Arena
from grader.emulator.compiler.toolchain import CompileError
from grader.emulator.device.activity import DIRECTIONS, Observation
from grader.emulator.device.capability import (
    ATTRIBUTES,
    MAX_BLOCK,
    MAX_GRID,
    MAX_SHARED,
    MAX_THREADS,
    STICKY,
    Refused,
    error,
)
from grader.emulator.device.intervention import Intervention
from grader.emulator.device.launch_profile import LaunchProfile
from grader.emulator.device.memory_state import Checking
from grader.emulator.native import Gemm, Kernels, Launch, LaunchCounters, LoadedModule, Runtime, SiteTable
from grader.ipc.framing import ProtocolError, send_frame

MAX_REPEATED = 4096  # launches whose headers are kept


class EmulatedGPU:
    """The emulated GPU. The public methods down to `sync` answer the client's verbs of their names."""

    def __init__(self, arena_file: int, arena_bytes: int, capacity: int, cores: int, control: int) -> None:
        self.runtime = Runtime()
        self.runtime.start(cores)
        self.runtime.catch_faults(control)
        self.arena = Arena(arena_file, arena_bytes, capacity)
        self.cores = cores
        self.modules: dict[int, Kernels] = {}
        self.events: dict[int, int] = {}
        self.error: dict[str, Any] | None = None
        self.empty = False
        self.order_seed = 0
        self.observation = Observation()
        self.checking = Checking(self.runtime, self.arena, active=False)
        self.intervention: Intervention | None = None
        self.header = b""  # of the request that is worked off
        self.repeated: dict[bytes, tuple[Launch, int, str]] = {}
        """By header, launches that were checked before, with the bytes of their arguments and the kernel's name."""

    # Answered requests

    def hello(self) -> dict[str, Any]:
        return {
            "base": self.arena.base,
            "arena": self.arena.size,
            "capacity": self.arena.capacity,
            "name": "PagedLab emulated GPU",
            "compute_capability": [8, 6],
            "attributes": ATTRIBUTES | {"MULTIPROCESSOR_COUNT": self.cores},
        }

    def alloc(self, bytes: int) -> dict[str, Any]:
        if bytes <= 0:
            return {"error": error(1, f"{bytes} bytes wanted; an allocation has at least 1")}
        pointer = self.arena.allocate(bytes)
        if pointer is None:
            left = self.arena.free_bytes
            return {"error": error(2, f"{bytes} bytes wanted, {left} of {self.arena.capacity} are left")}
        self.observation.allocations += 1
        self.checking.allocated(pointer, bytes)
        return {"ptr": pointer}

    def memory(self) -> dict[str, Any]:
        return {"free": self.arena.free_bytes, "total": self.arena.capacity}

    def compile(self, source: str, options: list[str], include_dirs: list[str]) -> dict[str, Any]:
        try:
            kernels = Kernels(source, options, include_dirs)
            if self._is_instrumented:
                kernels.instrumented()
        except CompileError as refused:
            return {"error": "compile", "log": refused.log, "command": refused.command}
        number = len(self.modules) + 1
        self.modules[number] = kernels
        module = kernels.plain.module
        return {
            "module": number,
            "kernels": kernels.plain.description(),
            "constants": self._move_globals(kernels.plain),
            "log": module.log,
            "command": module.command,
            "cached": module.cached,
        }

    def event(self, event: int) -> dict[str, Any]:
        return {"nanoseconds": self.events.get(event)}

    def sync(self) -> dict[str, Any]:
        found = self.error
        if found and found["code"] not in STICKY:
            self.error = None
        return {"error": found}

    # One-way requests

    def free(self, ptr: int) -> None:
        self.arena.free(ptr)

    def record(self, event: int) -> None:
        self.events[event] = time.perf_counter_ns()

    def memset(self, ptr: int, width: int, value: int, count: int) -> None:
        if width not in (1, 2, 4) or count < 0 or not self.arena.holds(ptr, width * count):
            raise Refused(1, f"memset of {count} elements of {width} bytes beyond the allocation")
        self.observation.memsets += 1
        self.checking.written(ptr, width * count)
        self.arena.fill(ptr, (value % 256**width).to_bytes(width, "little"), count)

    def copy(self, target: int, source: int, bytes: int) -> None:
        if not self.arena.holds(target, bytes) or not self.arena.holds(source, bytes):
            raise Refused(1, f"copy of {bytes} bytes beyond an allocation")
        self.observation.device_copies += 1
        self.observation.device_copied_bytes += bytes
        self.checking.written(target, bytes)
        ctypes.memmove(target, source, bytes)

    def array(self, ptr: int, bytes: int, written: bool) -> None:
        self.checking.array(ptr, bytes, written)

    def copied(self, to: str, ptr: int, bytes: int) -> None:
        if to not in DIRECTIONS or bytes < 0:
            raise ProtocolError(f"a copy of {bytes} bytes to {to!r}")
        self.observation.add_copy(to, bytes)
        if to == "device":
            self.checking.written(ptr, bytes)

    def gemm(self, c_type: str, **fields: Any) -> None:
        call = Gemm(c_is_float=c_type == "f32", **fields)
        m, n, k = call.m, call.n, call.k
        self._check_operand("a", fields, (k, m) if call.trans_a else (m, k), 2)
        self._check_operand("b", fields, (n, k) if call.trans_b else (k, n), 2)
        self._check_operand("c", fields, (m, n), 4 if call.c_is_float else 2)
        if m > 0 and n > 0:
            self.observation.add_gemm(m, n, k, 4 if call.c_is_float else 2)
            self.checking.written(call.c, ((n - 1) * call.ldc + m) * (4 if call.c_is_float else 2))
            if not self.empty:
                self.runtime.gemm(ctypes.byref(call))
            if self.intervention is not None:
                self.intervention.multiplied(call)

    def _check_operand(self, name: str, fields: dict[str, Any], shape: tuple[int, int], element: int) -> None:
        """An operand of these rows and columns, as it is stored, must lie in one allocation."""
        (rows, columns), leading = shape, fields[f"ld{name}"]
        if min(shape) < 0 or not max(1, rows) <= leading < 2**31 or columns >= 2**31:
            raise Refused(7, f"{name} has {rows} rows and {columns} columns as it is stored, ld{name} is {leading}")
        size = ((columns - 1) * leading + rows) * element if rows and columns else 0
        begin, found = self.arena.find(fields[name])
        if size > begin + found - fields[name]:
            raise Refused(
                7, f"{name} as described takes {size} bytes, its allocation has {begin + found - fields[name]}"
            )

    def launch(
        self, module: int, kernel: str, grid: list[int], block: list[int], shared: int, arguments: bytes
    ) -> None:
        kernels = self.modules[module]
        self._check_launch(kernels.plain, kernel, grid, block, shared, len(arguments))
        self.observation.launches[kernel] += 1
        is_counted = self.observation.counted
        if self.empty:
            if is_counted:
                self.observation.add_empty_kernel(kernel, grid, block, kernels.plain.num_pointers(kernel))
            return
        build = self._build(kernels)
        launch = build.launch(kernel)
        launch.grid[:], launch.block[:] = grid, block
        launch.dynamic_shared, launch.order_seed = shared, self.order_seed
        if self._is_instrumented:
            self._run_instrumented(launch, kernels, arguments)
            return
        if self.intervention is not None:
            self._run(launch, arguments)
            self.intervention.launched(kernel, kernels.plain.arguments(kernel), arguments)
            return
        if len(self.repeated) >= MAX_REPEATED:
            self.repeated.clear()
        self.repeated[self.header] = launch, len(arguments), kernel
        self._run(launch, arguments)

    @property
    def _is_instrumented(self) -> bool:
        return (self.observation.counted or self.checking.active) and not self.empty

    def _build(self, kernels: Kernels) -> LoadedModule:
        """The build that is wanted now. Raises Refused when the instrumented one cannot be compiled."""
        try:
            return kernels.instrumented() if self._is_instrumented else kernels.plain
        except CompileError as refused:
            raise Refused(209, refused.log.partition("\n")[0]) from None

    def _run(self, launch: Launch, arguments: bytes) -> None:
        launch.arguments = arguments
        self.runtime.launch(ctypes.byref(launch))
        if launch.error:
            where = f": {self.arena.describe(launch.address)}" if launch.error == 700 and launch.address else ""
            detail = launch.module.with_places(launch.detail.decode("utf-8", "replace"))
            self.error = error(launch.error, detail + where)

    def _run_instrumented(self, launch: Launch, kernels: Kernels, arguments: bytes) -> None:
        kernel, module = launch.name.decode(), kernels.instrumented()
        pointers = module.pointer_arguments(kernel, arguments)
        allocations = [self.arena.find(pointer) for *_, pointer in pointers]
        counters, checks = LaunchCounters(), self.checking.checks(module, kernel)
        launch.counters = ctypes.pointer(counters) if self.observation.counted else None
        launch.checks = ctypes.pointer(checks) if self.checking.active else None
        launch.use_memory(self.arena.base, self.arena.size, allocations)
        if self.observation.profiled:
            launch.sites = ctypes.pointer(SiteTable())
        kernels.plain.copy_globals(module)
        self._run(launch, arguments)
        module.copy_globals(kernels.plain)
        self.checking.collect(launch, checks, module, pointers)
        if self.observation.counted and not launch.error:
            self.observation.add_kernel(kernel, counters, launch.num_pointers)
            if launch.sites:
                self.observation.add_profile(LaunchProfile(launch, module, pointers, allocations))

    def _check_launch(
        self, module: LoadedModule, name: str, grid: list[int], block: list[int], shared: int, given: int
    ) -> None:
        kernel = module.kernel(name)
        extents = zip(block + grid, MAX_BLOCK + MAX_GRID, strict=True)
        threads = block[0] * block[1] * block[2]
        if not all(1 <= size <= limit for size, limit in extents) or threads > min(MAX_THREADS, kernel.max_threads):
            raise Refused(1, f"{name} with block {block}, grid {grid}")
        if not 0 <= shared <= MAX_SHARED - module.module.shared[name]:
            raise Refused(1, f"{name} with {shared} bytes of dynamic shared memory")
        if given != kernel.parameter_bytes:
            raise Refused(701, f"{given} bytes of arguments, {name} takes {kernel.parameter_bytes}")

    def _move_globals(self, loaded: LoadedModule) -> dict[str, list[int]]:
        """Moves a module's variables into device memory: {name: [pointer, bytes]}."""
        address, size = loaded.module.globals_extent
        moved = self.arena.adopt(loaded.base + address, size) if size else None
        variables = loaded.module.globals if moved is not None else {}
        found = {name: [(moved or 0) + at - address, bytes] for name, (at, bytes) in variables.items()}
        for name, (at, bytes) in loaded.module.constants.items():  # those that cannot change are copied
            copy = self.arena.allocate(bytes)
            if copy is not None:
                ctypes.memmove(copy, loaded.base + at, bytes)
                found[name] = [copy, bytes]
        return found

    # The parent's requests

    def control(self, request: dict[str, Any]) -> dict[str, Any]:
        match request:
            case {"verb": "set_mode", **settings}:
                self.empty = settings.get("empty", self.empty)
                self.order_seed = settings.get("order_seed", self.order_seed)
                self.repeated.clear()
                return {}
            case {"verb": "observe", "counted": counted, **more}:
                self._observe(counted, more.get("checked", False), more.get("profiled", False))
                change = more.get("change")
                self.intervention = None if change is None else Intervention(self.arena, *change)
                return {}
            case {"verb": "observed"}:
                memory = {"used": self.arena.used, "peak": self.arena.peak}
                followed = self.intervention
                changes = {} if followed is None else {"outputs": followed.outputs, "changed": followed.changed}
                return self.observation.report() | memory | changes | {"reports": self.checking.report()}
            case {"verb": "limit", "bytes": limit}:
                self.arena.limit = self.arena.capacity if limit is None else limit
                return {}
            case {"verb": "first_written", "ptr": begin, "bytes": size, "except": ranges}:
                return {"offset": self.arena.first_written(begin, size, ranges)}
        raise ProtocolError(f"unknown request {request.get('verb')!r}")

    def _observe(self, counted: bool, checked: bool, profiled: bool) -> None:
        self.observation = Observation(counted, profiled)
        self.checking = Checking(self.runtime, self.arena, active=checked)
        self.arena.peak = self.arena.used
        self.repeated.clear()
        for kernels in self.modules.values():
            with contextlib.suppress(Refused):  # it is told at the launch
                self._build(kernels)  # now, and not in the time of the work that is observed

    # The client's requests

    def serve(self, client: socket.socket, header: bytes, payload: bytes) -> None:
        """Work off one request."""
        launch, size, name = self.repeated.get(header, (None, 0, ""))
        if launch is not None and size == len(payload) and self.error is None:
            self.observation.launches[name] += 1
            self._run(launch, payload)
            return
        self.header = header
        request = json.loads(header)
        verb = request.pop("verb", None)
        if verb in ANSWERED:
            send_frame(client, getattr(self, verb)(**request))
        elif verb not in ONE_WAY:
            raise ProtocolError(f"unknown verb {verb!r}")
        elif self.error is None or verb in ("free", "record"):
            if verb == "launch":
                request["arguments"] = payload
            try:
                getattr(self, verb)(**request)
            except Refused as refused:
                self.error = refused.error


ANSWERED = ("hello", "alloc", "memory", "compile", "event", "sync")
ONE_WAY = ("free", "launch", "memset", "copy", "copied", "array", "gemm", "record")
