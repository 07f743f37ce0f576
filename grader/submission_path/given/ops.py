"""One launcher per kernel: checks the arrays, looks the launch up in launch.toml, launches. Allocates nothing.

Arguments are the outputs, then the inputs, then the scalars; the caller allocates every array. T tokens, H hidden size,
V vocabulary, D head size, Hq and Hkv query and key/value heads, I intermediate size, L queries, S keys. Arrays are
contiguous, bf16 unless said. A launch whose outputs are empty does nothing.

Each launcher raises ShapeError or TypeError for an array that does not fit, LaunchConfigError for an unusable
launch.toml, KernelNotFoundError for a missing kernel, and NotImplementedError with the task's id where launch.toml
still says TODO.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .contracts import CONTRACTS, Contract, check_arrays
from .launch import Geometry, LaunchConfigError, LaunchFile

if TYPE_CHECKING:
    from pycuda.driver import Function, Module, Stream
    from pycuda.gpuarray import GPUArray

HEADERS = Path(__file__).resolve().parent / "include"
"""What kernels can include besides the headers of their own folder, such as warp.cuh."""
DEFAULT_SHARED_LIMIT = 48 * 1024  # bytes a block may use before the function asks for more
MAX_PLANS = 4096


class KernelNotFoundError(LookupError):
    """The submission has no such file, or the file no such kernel."""


class _Plan(NamedTuple):
    """All that is the same in every launch with arrays of these shapes."""

    function: Function
    geometry: Geometry
    ints: tuple[int, ...]


class _Submission:
    """One engine's kernels: compiled file by file, at the first launch that needs them."""

    def __init__(self, engine_dir: Path) -> None:
        self.engine_dir = engine_dir
        self.plans: dict[Any, _Plan | None] = {}  # None: the outputs are empty, nothing to launch
        self._launch_file: LaunchFile | None = None
        self._binaries: dict[str, bytes] = {}
        self._modules: dict[str, Module] = {}
        self._functions: dict[str, Function] = {}
        self._shared_limits: dict[str, int] = {}

    def unload(self) -> None:
        """Forget what is loaded on the device, not what is compiled."""
        for loaded in (self.plans, self._modules, self._functions, self._shared_limits):
            loaded.clear()

    def geometry(self, name: str, dims: Mapping[str, int]) -> Geometry:
        if name == "vector_add":  # stage 0's launch is the student's own Python; launch.toml begins with stage 2
            return Geometry((256, 1, 1), (-(-dims["n"] // 256), 1, 1), 0)
        if self._launch_file is None:
            self._launch_file = LaunchFile(self.engine_dir / "launch.toml")
        return self._launch_file.geometry(name, dims)

    def add_plan(self, key: Any, contract: Contract, arrays: tuple[GPUArray, ...]) -> _Plan | None:
        """Work the plan out and remember it under `key`; raises what a launcher raises."""
        if len(self.plans) >= MAX_PLANS:
            self.plans.clear()
        self.plans[key] = self._plan(contract, arrays)
        return self.plans[key]

    def _plan(self, contract: Contract, arrays: tuple[GPUArray, ...]) -> _Plan | None:
        dims = check_arrays(contract, arrays)
        if dims.get("T") == 0 or all(array.size == 0 for array in arrays[: len(contract.outputs)]):
            return None
        geometry = self.geometry(contract.name, dims)
        function = self._function(contract)
        self._allow_shared(contract.name, function, geometry.shared)
        return _Plan(function, geometry, tuple(dims[name] for name in contract.ints))

    def _function(self, contract: Contract) -> Function:
        if contract.name not in self._functions:
            from pycuda.driver import LogicError  # noqa: PLC0415  (the grader reads contracts without PyCUDA)

            try:
                function = self._module(contract.file).get_function(contract.name)
            except LogicError as error:
                if "not found" not in str(error):
                    raise
                raise KernelNotFoundError(self._missing(contract)) from None
            self._functions[contract.name] = function.prepare(contract.argument_format)
        return self._functions[contract.name]

    def _missing(self, contract: Contract) -> str:
        """What to write for a kernel that a compiled file does not have, and what it has."""
        source = (self.engine_dir / "kernels" / contract.file).read_text(encoding="utf-8-sig")
        found = re.findall(r'(extern\s*"C"[\s{]*)?__global__[^;{(]*?(\w+)\s*\(', source)
        wanted = f'extern "C" __global__ void {contract.name}(…)'
        if any(name == contract.name for _, name in found):
            return f'kernels/{contract.file} declares {contract.name} without extern "C": write {wanted}'
        declared = ", ".join(name for _, name in found) or "none"
        return f"kernels/{contract.file} has no kernel {contract.name}; those it declares: {declared}. Write {wanted}"

    def _module(self, file: str) -> Module:
        if file not in self._modules:
            from pycuda.driver import module_from_buffer  # noqa: PLC0415  (the grader reads contracts without PyCUDA)

            self._modules[file] = module_from_buffer(self._binary(file))
        return self._modules[file]

    def _binary(self, file: str) -> bytes:
        if file not in self._binaries:
            from pycuda.compiler import compile  # noqa: PLC0415  (the grader reads contracts without PyCUDA)

            kernels = self.engine_dir / "kernels"
            try:
                source = (kernels / file).read_text(encoding="utf-8-sig")
            except OSError as error:
                raise KernelNotFoundError(f"kernels/{file} cannot be read ({error.strerror})") from None
            except UnicodeDecodeError as error:
                raise KernelNotFoundError(f"kernels/{file} is not UTF-8 text (byte {error.start})") from None
            # Compilers then name the student's own file and line; a stub's line in a kernel expands to nothing.
            options = ["-std=c++17", "-DNOT_IMPLEMENTED(id)="]
            self._binaries[file] = compile(
                f'#line 1 "{file}"\n{source}',
                options=options,
                no_extern_c=True,
                include_dirs=[str(kernels.resolve()), str(HEADERS)],
            )
        return self._binaries[file]

    def _allow_shared(self, name: str, function: Function, shared: int) -> None:
        """Above 48 KB a function must ask for its dynamic shared memory before it is launched."""
        if shared <= self._shared_limits.get(name, DEFAULT_SHARED_LIMIT - function.shared_size_bytes):
            return
        from pycuda.driver import Error, function_attribute  # noqa: PLC0415  (the grader reads contracts without PyCUDA)

        try:
            function.set_attribute(function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        except Error as error:
            raise LaunchConfigError(
                f"launch.toml [{name}] shared: {shared} bytes a block are more than this device has ({error})"
            ) from None
        self._shared_limits[name] = shared


_submission: _Submission | None = None


def configure(engine_dir: str | Path) -> None:
    """Launch the kernels of this engine from now on: its folder holds kernels/ and launch.toml."""
    global _submission
    _submission = _Submission(Path(engine_dir))


def unload() -> None:
    """Load the kernels' modules again at their next launch: their variables in device memory begin as in the source."""
    if _submission is not None:
        _submission.unload()


def launch_geometry(name: str, dims: Mapping[str, int]) -> Geometry:
    """(block, grid, shared bytes) of kernel `name` for dimensions such as {"T": 3, "H": 33}."""
    return _configured().geometry(name, dims)


def _configured() -> _Submission:
    if _submission is None:
        raise RuntimeError("call given.configure(engine_dir) first: no kernels are known yet")
    return _submission


def _launch(name: str, arrays: tuple[GPUArray, ...], floats: tuple[float, ...], stream: Stream | None) -> None:
    """What depends on shapes alone is worked out at a shape's first launch and looked up afterwards."""
    submission = _configured()
    try:
        key = (name, *[(array.shape, array.strides, array.dtype) for array in arrays])
        pointers = [0 if array.gpudata is None else array.gpudata for array in arrays]  # None: an empty array
    except AttributeError:
        check_arrays(CONTRACTS[name], arrays)  # says which argument is no GPUArray
        raise
    try:
        plan = submission.plans[key]
    except KeyError:
        plan = submission.add_plan(key, CONTRACTS[name], arrays)
    if plan is not None:
        block, grid, shared = plan.geometry
        try:
            plan.function.prepared_async_call(grid, block, stream, *pointers, *plan.ints, *floats, shared_size=shared)
        except TypeError as error:
            raise TypeError(CONTRACTS[name].misfit(str(error))) from None


def vector_add(out: GPUArray, x: GPUArray, y: GPUArray, stream: Stream | None = None) -> None:
    """out = x + y; all [n] float32. Blocks of 256 threads: this launch is not in launch.toml."""
    _launch("vector_add", (out, x, y), (), stream)


def embedding(out: GPUArray, table: GPUArray, ids: GPUArray, stream: Stream | None = None) -> None:
    """out[t] = table[ids[t]]; out [T, H], table [V, H], ids [T] int32, each in 0 … V − 1."""
    _launch("embedding", (out, table, ids), (), stream)


def residual_add(x: GPUArray, y: GPUArray, stream: Stream | None = None) -> None:
    """x += y in place; both [T, H]."""
    _launch("residual_add", (x, y), (), stream)


def silu_mul(out: GPUArray, gate: GPUArray, up: GPUArray, stream: Stream | None = None) -> None:
    """out = gate / (1 + exp(−gate)) · up; all [T, I]."""
    _launch("silu_mul", (out, gate, up), (), stream)


def rmsnorm_tree(out: GPUArray, x: GPUArray, weight: GPUArray, eps: float, stream: Stream | None = None) -> None:
    """As rmsnorm, summed by a tree in shared memory."""
    _launch("rmsnorm_tree", (out, x, weight), (eps,), stream)


def rmsnorm(out: GPUArray, x: GPUArray, weight: GPUArray, eps: float, stream: Stream | None = None) -> None:
    """out[t] = x[t] / sqrt(mean(x[t]²) + eps) · weight; out and x [T, H], weight [H]."""
    _launch("rmsnorm", (out, x, weight), (eps,), stream)


def rope(
    q: GPUArray, k: GPUArray, cos: GPUArray, sin: GPUArray, positions: GPUArray, stream: Stream | None = None
) -> None:
    """Rotate the pairs (i, i + D/2) of q [T, Hq, D] and k [T, Hkv, D] in place, by row positions[t] of the tables.

    cos, sin [length, D/2] float32; positions [T] int32, each in 0 … length − 1.
    """
    _launch("rope", (q, k, cos, sin, positions), (), stream)


def softmax(out: GPUArray, x: GPUArray, stream: Stream | None = None) -> None:
    """Softmax of each row; out and x [R, N] float32."""
    _launch("softmax", (out, x), (), stream)


def matmul_naive(out: GPUArray, x: GPUArray, w: GPUArray, stream: Stream | None = None) -> None:
    """out = x · wᵀ, one thread an element; out [M, N], x [M, K], w [N, K]."""
    _launch("matmul_naive", (out, x, w), (), stream)


def matmul_tiled(out: GPUArray, x: GPUArray, w: GPUArray, stream: Stream | None = None) -> None:
    """out = x · wᵀ, tiles in shared memory; out [M, N], x [M, K], w [N, K]."""
    _launch("matmul_tiled", (out, x, w), (), stream)


def attention(out: GPUArray, q: GPUArray, k: GPUArray, v: GPUArray, scale: float, stream: Stream | None = None) -> None:
    """Causal attention: query i of L sees the keys 0 … S − L + i, query head h the key/value head h // (Hq / Hkv).

    out, q [L, Hq, D]; k, v [S, Hkv, D]; scale multiplies the scores. A query that sees no key gives zeros.
    """
    _launch("attention", (out, q, k, v), (scale,), stream)


def argmax(out: GPUArray, x: GPUArray, stream: Stream | None = None) -> None:
    """Index of each row's largest value, the lowest where several are equal; out [R] int32, x [R, N] float32, N > 0."""
    _launch("argmax", (out, x), (), stream)


def write_kv(
    key_cache: GPUArray,
    value_cache: GPUArray,
    k: GPUArray,
    v: GPUArray,
    slot_mapping: GPUArray,
    stream: Stream | None = None,
) -> None:
    """Row slot_mapping[t] of the caches, counted over blocks and positions, becomes k[t] and v[t]; −1 is skipped.

    Caches [num_blocks, block_size, Hkv, D] (a contiguous cache is a pool whose block_size is its length); k, v
    [T, Hkv, D]; slot_mapping [T] int32, each −1 or in 0 … num_blocks · block_size − 1, none twice but −1.
    """
    _launch("write_kv", (key_cache, value_cache, k, v, slot_mapping), (), stream)


def decode_attention(
    out: GPUArray,
    q: GPUArray,
    key_cache: GPUArray,
    value_cache: GPUArray,
    slots: GPUArray,
    context_lens: GPUArray,
    scale: float,
    stream: Stream | None = None,
) -> None:
    """One query for each sequence: q[b] over the first context_lens[b] positions of row slots[b] of the caches.

    out, q [B, Hq, D]; caches [num_slots, length, Hkv, D]; slots [B] and context_lens [B] int32. The current token
    counts: its key and value are written already. A context of 0 gives a row of zeros.
    """
    arrays = (out, q, key_cache, value_cache, slots, context_lens)
    _launch("decode_attention", arrays, (scale,), stream)


def flash_attention(
    out: GPUArray, q: GPUArray, k: GPUArray, v: GPUArray, scale: float, stream: Stream | None = None
) -> None:
    """As attention, in one pass over tiles of keys: no memory that grows with the number of keys."""
    _launch("flash_attention", (out, q, k, v), (scale,), stream)


def flash_decode_attention(
    out: GPUArray,
    q: GPUArray,
    key_cache: GPUArray,
    value_cache: GPUArray,
    slots: GPUArray,
    context_lens: GPUArray,
    scale: float,
    stream: Stream | None = None,
) -> None:
    """As decode_attention, in one pass over tiles of keys: no memory that grows with the context."""
    arrays = (out, q, key_cache, value_cache, slots, context_lens)
    _launch("flash_decode_attention", arrays, (scale,), stream)


def attention_varlen(
    out: GPUArray,
    q: GPUArray,
    k: GPUArray,
    v: GPUArray,
    cu_seqlens_q: GPUArray,
    cu_seqlens_k: GPUArray,
    scale: float,
    stream: Stream | None = None,
) -> None:
    """Causal attention of B sequences packed one after the other: rows cu_seqlens_q[b] to cu_seqlens_q[b + 1] of q
    see rows cu_seqlens_k[b] to cu_seqlens_k[b + 1] of k and v as in `attention`, and nothing else.

    out, q [T, Hq, D]; k, v [S, Hkv, D]; cu_seqlens [B + 1] int32, rising from 0 to T, respectively to S.
    """
    _launch("attention_varlen", (out, q, k, v, cu_seqlens_q, cu_seqlens_k), (scale,), stream)


def paged_attention(
    out: GPUArray,
    q: GPUArray,
    key_cache: GPUArray,
    value_cache: GPUArray,
    block_tables: GPUArray,
    context_lens: GPUArray,
    scale: float,
    stream: Stream | None = None,
) -> None:
    """One query for each sequence over a paged cache: position j of sequence b is row j % block_size of block
    block_tables[b, j // block_size].

    out, q [B, Hq, D]; caches [num_blocks, block_size, Hkv, D]; block_tables [B, M] int32, meaningless behind the
    blocks that context_lens [B] int32 needs; a context of 0 gives a row of zeros.
    """
    arrays = (out, q, key_cache, value_cache, block_tables, context_lens)
    _launch("paged_attention", arrays, (scale,), stream)
