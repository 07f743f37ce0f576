"""How fast the solutions' engine serves on this GPU: `python -m tests.benchmarks.serving [--transformers] JSON`.

Random weights of exactly Llama 3.2 1B's shape, random prompts, EOS ignored. Writes one JSON file:

- decode at 1, 32 and 128 sequences, launched one by one and replayed from CUDA graphs: tokens a second, and which part
  of the roofline that is (the time in which the copy bandwidth of this GPU would move the weights and the live keys and
  values once, over the time taken);
- the same by transformers' `generate` with a static cache, on the same weights and prompts in the same process;
- a trace of 256 requests with 100 to 1,024 tokens in and out; a prefill of 4,096 tokens; launches a step.
"""

import argparse
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from grader import KIT
from grader.throughput.llama_shape import bench_model
from tests.gpu.agreement import machine
from tests.gpu.records import write_records

PROMPT, NEW = 128, 256
BATCHES = (1, 32, 128)
TRACE_REQUESTS, SHORTEST, LONGEST = 256, 100, 1024


def import_engine(engine: Path) -> types.ModuleType:
    """The engine's module llm, on the real PyCUDA, with `given` importable as a submission sees it."""
    import importlib

    sys.path.insert(0, str(engine.parent))
    import given

    given.configure(engine)
    return importlib.import_module("engine.llm")


class Bench:
    """One process's measurements; `figures` is what the JSON file holds."""

    def __init__(self, folder: Path, engine: Path) -> None:
        self.config = bench_model(folder)
        self.folder = folder
        self.llm_module = import_engine(engine)
        import pycuda.driver as cuda
        from given.requests import SamplingParams

        self.cuda = cuda
        self.params: Callable[..., Any] = SamplingParams
        self.rng = np.random.default_rng(0)
        self.figures: dict[str, Any] = {"machine": machine()}

    def prompts(self, count: int, lengths: int | tuple[int, int] = PROMPT) -> list[list[int]]:
        low, high = (lengths, lengths) if isinstance(lengths, int) else lengths
        sizes = self.rng.integers(low, high, size=count, endpoint=True)
        return [self.rng.integers(self.config.vocab_size, size=size).tolist() for size in sizes]

    def copy_bandwidth(self) -> float:
        """Bytes read and written a second by a copy from one place on the device to another."""
        size = 1 << 30
        source, target = self.cuda.mem_alloc(size), self.cuda.mem_alloc(size)
        best = 0.0
        for _ in range(5):
            start, end = self.cuda.Event(), self.cuda.Event()
            start.record()
            self.cuda.memcpy_dtod_async(target, source, size)
            end.record()
            end.synchronize()
            best = max(best, 2 * size / (end.time_since(start) / 1000))
        source.free()
        target.free()
        return best

    def floor_seconds(self, batch: int, context: float, bandwidth: float) -> float:
        """Seconds in which the weights and the keys and values of `batch` contexts are read once."""
        config = self.config
        weights = 2 * 1_235_814_400
        kv = 4 * config.num_layers * config.num_kv_heads * config.head_dim * context * batch
        return (weights + kv) / bandwidth

    def decode(self, bandwidth: float, eager: bool) -> None:
        for batch in BATCHES:
            llm = self.llm_module.LLM(
                str(self.folder), max_num_seqs=batch, max_model_len=PROMPT + NEW + 16, enforce_eager=eager
            )
            prompts = self.prompts(batch)
            greedy = self.params(temperature=0.0, max_tokens=NEW, ignore_eos=True)
            llm.generate(prompts, self.params(temperature=0.0, max_tokens=4, ignore_eos=True))
            for index, prompt in enumerate(prompts):
                llm.add_request(str(index), prompt, greedy)
            begin = time.perf_counter()
            while llm.stats()["waiting"]:
                llm.step()
            prefilled = time.perf_counter()
            tokens = 0
            while llm.has_unfinished_requests():
                tokens += len(llm.step())
            end = time.perf_counter()
            step = (end - prefilled) / (tokens / batch)
            floor = self.floor_seconds(batch, PROMPT + NEW / 2, bandwidth)
            name = f"decode {batch}" + ("" if eager else " with graphs")
            self.figures[name] = {
                "tokens_per_second": tokens / (end - prefilled),
                "generate_tokens_per_second": batch * NEW / (end - begin),
                "milliseconds_per_step": 1000 * step,
                "roofline_fraction": floor / step,
            }
            print(f"{name}: {self.figures[name]}", flush=True)
            del llm

    def trace(self, eager: bool, max_num_seqs: int = 256) -> None:
        self.rng = np.random.default_rng(0)
        prompts = self.prompts(TRACE_REQUESTS, (SHORTEST, LONGEST))
        wanted = self.rng.integers(SHORTEST, LONGEST, size=TRACE_REQUESTS, endpoint=True)
        params = [self.params(temperature=0.0, max_tokens=int(n), ignore_eos=True) for n in wanted]
        llm = self.llm_module.LLM(
            str(self.folder),
            max_num_seqs=max_num_seqs,
            max_model_len=2 * LONGEST,
            max_num_batched_tokens=8192,
            enforce_eager=eager,
        )
        llm.generate(prompts[:8], self.params(temperature=0.0, max_tokens=4, ignore_eos=True))
        steps = llm.stats()["steps"]
        begin = time.perf_counter()
        completions = llm.generate(prompts, params)
        seconds = time.perf_counter() - begin
        tokens = sum(len(completion.token_ids) for completion in completions)
        assert tokens == wanted.sum()
        name = "trace" if eager else "trace with graphs"
        self.figures[name] = {
            "requests": TRACE_REQUESTS,
            "seconds": seconds,
            "output_tokens_per_second": tokens / seconds,
            "prompt_tokens": sum(map(len, prompts)),
            "output_tokens": tokens,
            "steps": llm.stats()["steps"] - steps,
            "preemptions": llm.stats()["preemptions"],
        }
        print(f"{name}: {self.figures[name]}", flush=True)

    def prefill(self, tokens: int = 4096) -> None:
        llm = self.llm_module.LLM(str(self.folder), max_num_seqs=1, max_model_len=tokens + 16)
        one = self.params(temperature=0.0, max_tokens=1, ignore_eos=True)
        times = []
        for _ in range(5):
            prompts = self.prompts(1, tokens)
            begin = time.perf_counter()
            llm.generate(prompts, one)
            times.append(time.perf_counter() - begin)
        self.figures["prefill"] = {"tokens": tokens, "milliseconds": 1000 * min(times)}
        print(f"prefill: {self.figures['prefill']}", flush=True)

    def launches(self) -> None:
        """Kernel launches and matrix products of one decode step."""
        from given import cublas, ops

        counts = {"launches": 0, "products": 0}
        launch, product = ops._launch, cublas.gemm_ex

        def counted_launch(*arguments: Any) -> None:
            counts["launches"] += 1
            launch(*arguments)

        def counted_product(*arguments: Any) -> None:
            counts["products"] += 1
            product(*arguments)

        llm = self.llm_module.LLM(str(self.folder), max_num_seqs=8, max_model_len=64)
        for index in range(8):
            llm.add_request(str(index), [1, 2, 3], self.params(temperature=0.0, max_tokens=4, ignore_eos=True))
        llm.step()
        ops._launch, cublas.gemm_ex = counted_launch, counted_product  # type: ignore[assignment]
        llm.step()
        ops._launch, cublas.gemm_ex = launch, product
        self.figures["decode step"] = counts
        print(f"decode step: {counts}", flush=True)

    def transformers(self) -> None:
        """generate with a static cache, twice: the first call compiles."""
        import torch
        import transformers

        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.bfloat16).to("cuda").eval()
        self.figures["transformers"] = {"transformers": transformers.__version__, "torch": torch.__version__}
        for batch in reversed(BATCHES):
            ids = torch.tensor(self.prompts(batch), device="cuda")
            options = {
                "attention_mask": torch.ones_like(ids),
                "do_sample": False,
                "cache_implementation": "static",
                "eos_token_id": None,
                "pad_token_id": 0,
            }
            best = float("inf")
            for _ in range(3):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                out = model.generate(ids, min_new_tokens=NEW, max_new_tokens=NEW, **options)
                torch.cuda.synchronize()
                best = min(best, time.perf_counter() - begin)
                assert out.shape[1] == PROMPT + NEW
            self.figures["transformers"][f"generate {batch}"] = {"tokens_per_second": batch * NEW / best}
            print(f"transformers {batch}: {batch * NEW / best:.0f} tok/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.serving")
    parser.add_argument("json", type=Path)
    parser.add_argument("--transformers", action="store_true", help="also measure transformers (needs torch)")
    parser.add_argument("--submission", type=Path, default=KIT / "solutions")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), (options.submission / "engine").resolve())
        bandwidth = bench.copy_bandwidth()
        bench.figures["copy_bytes_per_second"] = bandwidth
        bench.launches()
        bench.prefill()
        for eager in (True, False):
            bench.decode(bandwidth, eager)
            bench.trace(eager)
        if options.transformers:
            bench.transformers()
        write_records(options.json, bench.figures)


if __name__ == "__main__":
    main()
