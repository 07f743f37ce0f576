"""How fast the attention kernels of two engines are on this GPU, pair by pair.

`python -m tests.benchmarks.kernels ENGINE OTHER_ENGINE JSON`: each kernel of both is timed in turn, so that the ratio
holds when the machine's speed drifts. Shapes are those of Llama 3.2 1B: 32 query heads, 8 key/value heads of 64.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
import pycuda.driver as cuda
from given import ops
from pycuda import gpuarray

from tests.gpu.agreement import machine
from tests.gpu.records import write_records

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 32, 8, 64, 16
BATCH, CONTEXT, PROMPT = 128, 512, 2048
LAUNCHES, ROUNDS = 50, 9
SCALE = HEAD_DIM**-0.5

Launch = Callable[[], None]


def launches() -> dict[str, Launch]:
    """A launch of each attention kernel, by the engine that `given` is configured for."""
    rng = np.random.default_rng(0)

    def bf16(*shape: int) -> Any:
        return gpuarray.to_gpu(rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16))

    def integers(values: Any) -> Any:
        return gpuarray.to_gpu(np.asarray(values, np.int32))

    q, out = bf16(BATCH, HEADS, HEAD_DIM), bf16(BATCH, HEADS, HEAD_DIM)
    prompt_q, prompt_out = bf16(PROMPT, HEADS, HEAD_DIM), bf16(PROMPT, HEADS, HEAD_DIM)
    prompt_k, prompt_v = bf16(PROMPT, KV_HEADS, HEAD_DIM), bf16(PROMPT, KV_HEADS, HEAD_DIM)
    k, v = bf16(BATCH, CONTEXT, KV_HEADS, HEAD_DIM), bf16(BATCH, CONTEXT, KV_HEADS, HEAD_DIM)
    blocks = BATCH * CONTEXT // BLOCK_SIZE
    k_pool, v_pool = (array.reshape(blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM) for array in (k, v))
    tables = integers(rng.permutation(blocks).reshape(BATCH, -1))
    slots, lengths = integers(np.arange(BATCH)), integers(np.full(BATCH, CONTEXT))
    ends = integers(np.arange(0, PROMPT + 1, PROMPT // 4))
    return {
        "attention": lambda: ops.attention(prompt_out, prompt_q, prompt_k, prompt_v, SCALE),
        "flash_attention": lambda: ops.flash_attention(prompt_out, prompt_q, prompt_k, prompt_v, SCALE),
        "attention_varlen": lambda: ops.attention_varlen(prompt_out, prompt_q, prompt_k, prompt_v, ends, ends, SCALE),
        "decode_attention": lambda: ops.decode_attention(out, q, k, v, slots, lengths, SCALE),
        "flash_decode_attention": lambda: ops.flash_decode_attention(out, q, k, v, slots, lengths, SCALE),
        "paged_attention": lambda: ops.paged_attention(out, q, k_pool, v_pool, tables, lengths, SCALE),
    }


def microseconds(launch: Launch) -> float:
    """The mean time of a launch, after a first one."""
    launch()
    start, end = cuda.Event(), cuda.Event()
    start.record()
    for _ in range(LAUNCHES):
        launch()
    end.record()
    end.synchronize()
    return float(start.time_till(end)) * 1000 / LAUNCHES


def compare(engines: tuple[Path, Path], launch: Launch) -> dict[str, float]:
    """Median microseconds of both engines' kernels, and the median of the ratios of the rounds, first over second."""
    rounds = []
    for _ in range(ROUNDS):
        times = []
        for engine in engines:
            ops.configure(engine)
            times.append(microseconds(launch))
        rounds.append(times)
    first, second = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratio = statistics.median(a / b for a, b in rounds)
    return {"microseconds": round(first, 2), "other_microseconds": round(second, 2), "ratio": round(ratio, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kernels")
    parser.add_argument("engine", type=Path, help="a folder with kernels/ and launch.toml")
    parser.add_argument("other", type=Path)
    parser.add_argument("json", type=Path)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"machine": machine()}
    for name, launch in launches().items():
        figures[name] = compare((arguments.engine, arguments.other), launch)
        print(f"{name}: {figures[name]}", flush=True)
    write_records(arguments.json, figures)


if __name__ == "__main__":
    main()
