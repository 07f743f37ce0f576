"""Run every operation of the solutions on a GPU and on the emulator, on the same inputs, and compare.

    python -m tests.gpu.agreement     writes tests/gpu/agreement.json (needs an NVIDIA GPU and PyCUDA)

The emulator is trusted because of this: both devices' results are held against the float64 reference, and the
difference between them may be no larger than the sum of what each is allowed.
"""

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grader import KIT, VERSION, oracle
from grader.checking.api import BF16, Expected, InOut, OnDevice, Out
from grader.checking.draws import bf16, floats, integers
from grader.judge.compare import worst_ratio
from grader.worker.client import Worker
from grader.worker.connection import Deadlines
from tests.gpu.records import write_records

ENGINE = KIT / "solutions/engine"
REPORT = Path(__file__).with_name("agreement.json")

Case = tuple[str, tuple[Any, ...], tuple[Expected, ...]]
"""Operation, arguments of its launcher, what its results must be."""


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Each operation at sizes around its blocks and at those of the tiny model and of Llama 3.2 1B."""
    for n in (1, 255, 257, 1_000_003):
        x, y = floats(rng, n), floats(rng, n)
        yield "vector_add", (Out(n, np.float32), x, y), (oracle.vector_add(x, y),)
    for rows, columns in ((1, 1), (5, 1000), (3, 1025), (2, 128_256)):
        x = floats(rng, rows, columns, scale=5)
        yield "softmax", (Out(x.shape, np.float32), x), (oracle.softmax(x),)
        yield "argmax", (Out(rows, np.int32), x), (oracle.argmax(x),)
    yield from row_cases(rng)
    yield from product_cases(rng)
    yield from head_cases(rng)
    yield from cache_cases(rng)


def row_cases(rng: np.random.Generator) -> Iterator[Case]:
    for tokens, hidden in ((1, 1), (5, 288), (3, 2048), (7, 2880)):
        x, y, weight = bf16(rng, tokens, hidden), bf16(rng, tokens, hidden, scale=4), bf16(rng, hidden)
        table, ids = bf16(rng, 97, hidden), integers(rng, 97, tokens)
        out = Out((tokens, hidden))
        yield "embedding", (out, table, ids), (oracle.embedding(table, ids),)
        yield "residual_add", (InOut(x), y), (oracle.residual_add(x, y),)
        yield "silu_mul", (out, y, x), (oracle.silu_mul(y, x),)
        for kernel in ("rmsnorm_tree", "rmsnorm"):
            yield kernel, (out, x, weight, 1e-5), (oracle.rmsnorm(x, weight, 1e-5),)


def product_cases(rng: np.random.Generator) -> Iterator[Case]:
    for m, n, k in ((1, 1, 1), (17, 33, 65), (64, 64, 128), (5, 512, 2048), (96, 160, 320)):
        x, w = bf16(rng, m, k), bf16(rng, n, k)
        for kernel in ("matmul_naive", "matmul_tiled"):
            yield kernel, (Out((m, n)), x, w), (oracle.matmul(x, w),)
        for dtype in (BF16, np.float32):
            yield "linear.linear", (Out((m, n), dtype), OnDevice(x), OnDevice(w)), (oracle.matmul(x, w, dtype),)


def head_cases(rng: np.random.Generator) -> Iterator[Case]:
    for heads, kv_heads, dim in ((12, 4, 24), (32, 8, 64), (28, 4, 128)):
        q, k = bf16(rng, 9, heads, dim), bf16(rng, 9, kv_heads, dim)
        angles = np.outer(np.arange(300), 500_000.0 ** (-np.arange(0, dim, 2) / dim))
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        positions = integers(rng, 300, 9)
        yield "rope", (InOut(q), InOut(k), cos, sin, positions), oracle.rope(q, k, cos, sin, positions)
        for length, keys in ((1, 1), (1, 300), (17, 33), (40, 40)):
            q = bf16(rng, length, heads, dim, scale=2)
            k, v = bf16(rng, keys, kv_heads, dim), bf16(rng, keys, kv_heads, dim)
            for kernel in ("attention", "flash_attention"):
                yield kernel, (Out(q.shape), q, k, v, dim**-0.5), (oracle.attention(q, k, v, dim**-0.5),)
        starts = [np.cumsum([0, *lengths]).astype(np.int32) for lengths in ((1, 0, 17, 40), (1, 5, 33, 40))]
        q = bf16(rng, starts[0][-1], heads, dim, scale=2)
        k, v = (bf16(rng, starts[1][-1], kv_heads, dim) for _ in range(2))
        packed = (q, k, v, *starts, dim**-0.5)
        yield "attention_varlen", (Out(q.shape), *packed), (oracle.attention_varlen(*packed),)


def cache_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Caches hold NaN wherever no token was written, and tables anything behind the blocks of a context."""
    for heads, kv_heads, dim in ((12, 4, 24), (9, 3, 64), (32, 8, 64), (28, 4, 128), (3, 3, 8)):
        for block_size, contexts in ((8, (1, 0, 33)), (16, (15, 16, 17, 700)), (32, (129, 2048))):
            lengths, width = np.array(contexts, np.int32), max(contexts) // block_size + 2
            blocks = len(contexts) * width
            tables = rng.permutation(blocks).astype(np.int32).reshape(-1, width)
            positions = [(table, np.arange(length)) for table, length in zip(tables, contexts, strict=True)]
            rows = np.concatenate([table[j // block_size] * block_size + j % block_size for table, j in positions])
            slot_mapping = np.append(rows, -1).astype(np.int32)
            k, v = (bf16(rng, len(slot_mapping), kv_heads, dim) for _ in range(2))
            empty = np.full((blocks, block_size, kv_heads, dim), np.nan, BF16)
            written = oracle.write_kv(empty, empty, k, v, slot_mapping)
            yield "write_kv", (InOut(empty), InOut(empty), k, v, slot_mapping), written
            for table, length in zip(tables, contexts, strict=True):
                table[-(-length // block_size) :] = -1
            q = bf16(rng, len(contexts), heads, dim, scale=2)
            caches = [expected.values for expected in written]
            paged = (q, *caches, tables, lengths, dim**-0.5)
            yield "paged_attention", (Out(q.shape), *paged), (oracle.paged_attention(*paged),)
            slots = rng.permutation(len(contexts)).astype(np.int32)
            k, v = (bf16(rng, len(contexts), max(contexts), kv_heads, dim) for _ in range(2))
            decode = (q, k, v, slots, lengths, dim**-0.5)
            for kernel in ("decode_attention", "flash_decode_attention"):
                yield kernel, (Out(q.shape), *decode), (oracle.decode_attention(*decode),)


def results(worker: Worker, operation: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    run = worker.call if "." in operation else worker.launch
    result = run(operation, *arguments)
    return result if isinstance(result, tuple) else (result,)


def compare_devices(seed: int = 0) -> dict[str, dict[str, float]]:
    """Per operation: its cases, and the worst error of each device and of their difference, in allowed errors.

    1 is the limit for the devices and 2 for their difference.
    """
    gpu, emulator = (Worker(ENGINE, Deadlines(), emulated=emulated) for emulated in (False, True))
    worst: dict[str, dict[str, float]] = {}
    try:
        for operation, arguments, expected in cases(np.random.default_rng(seed)):
            row = worst.setdefault(operation, {"cases": 0, "gpu": 0.0, "emulator": 0.0, "difference": 0.0})
            row["cases"] += 1
            pairs = zip(results(gpu, operation, arguments), results(emulator, operation, arguments), strict=True)
            for (on_gpu, on_emulator), want in zip(pairs, expected, strict=True):
                row["gpu"] = max(row["gpu"], worst_ratio(on_gpu, want))
                row["emulator"] = max(row["emulator"], worst_ratio(on_emulator, want))
                between = Expected(on_emulator.astype(np.float64), want.allowed, want.dtype)
                row["difference"] = max(row["difference"], worst_ratio(on_gpu, between))
    finally:
        gpu.end()
        emulator.end()
    return worst


def source_hashes() -> dict[str, str]:
    """sha256 of what the report is about: the kernels, their launches, and the emulator's sources."""
    folders = (ENGINE / "kernels", KIT / "grader/emulator/include", KIT / "grader/emulator/runtime")
    files = [ENGINE / "launch.toml", *(path for folder in folders for path in folder.rglob("*") if path.is_file())]
    return {str(path.relative_to(KIT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def changed(reported: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """The sources that are not what a report was made of any more."""
    return sorted(name for name in reported.keys() | current.keys() if reported.get(name) != current.get(name))


def machine() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    nvcc = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[3]
    import pycuda

    versions = {"pycuda": pycuda.VERSION_TEXT, "nvcc": nvcc.strip(), "python": sys.version.split()[0], "kit": VERSION}
    return {"gpu": name, "driver": driver, **versions, "date": time.strftime("%Y-%m-%d")}


def main() -> int:
    worst = compare_devices()
    report = {"machine": machine(), "operations": worst, "sources": source_hashes()}
    write_records(REPORT, report)
    print(f"{'operation':<22} cases     gpu  emulator  difference   (in allowed errors)")
    for operation, row in worst.items():
        print(f"{operation:<22} {row['cases']:5d} {row['gpu']:7.3f} {row['emulator']:9.3f} {row['difference']:11.3f}")
    return 0 if agree(worst) else 1


def agree(worst: dict[str, dict[str, float]]) -> bool:
    return all(row["gpu"] <= 1 and row["emulator"] <= 1 and row["difference"] <= 2 for row in worst.values())


if __name__ == "__main__":
    sys.exit(main())
