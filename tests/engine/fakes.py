"""Stand-ins for what LLM needs of a GPU: arrays in host memory, and a model whose logits depend on all that its cache
holds of a slot, so that a token lost, doubled or taken from another request changes what follows."""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from engine.block_manager import BlockManager
from engine.sampling import sample
from given.config import LlamaConfig
from given.requests import RequestTooLong, SamplingParams

VOCAB = 40
EOS = (7, 23)
LONGEST = 64


class Array:
    """As much of a GPUArray as LLM uses; `gpudata` is the memory itself."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data

    @property
    def gpudata(self) -> np.ndarray:
        return self.data

    def __getitem__(self, index: Any) -> "Array":
        return Array(self.data[index])


def empty(shape: Any, dtype: Any) -> Array:
    return Array(np.zeros(shape, dtype))


def copy_to_host(target: np.ndarray, source: np.ndarray) -> None:
    target[...] = source.reshape(-1)[: target.size].reshape(target.shape)


def argmax(out: Array, x: Array, stream: None) -> None:
    assert out.data.shape == x.data.shape[:1]
    out.data[:] = x.data.argmax(axis=-1)


class Cache:
    """The public methods of PagedKVCache that scheduler and LLM use; what is stored of a token is its id."""

    def __init__(
        self, config: LlamaConfig, num_blocks: int, block_size: int, max_num_seqs: int, max_length: int
    ) -> None:
        self.num_slots, self.max_length, self.block_size = max_num_seqs, max_length, block_size
        self.block_manager = BlockManager(num_blocks, block_size)
        self.stored: dict[int, list[int]] = {}

    def length(self, slot: int) -> int:
        return len(self.stored.get(slot, []))

    def can_extend(self, counts: Mapping[int, int]) -> bool:
        lengths = {slot: self.length(slot) for slot in counts}
        assert all(0 <= slot < self.num_slots for slot in counts)
        if any(lengths[slot] + count > self.max_length for slot, count in counts.items()):
            return False
        blocks = [-(-(n + counts[s]) // self.block_size) - -(-n // self.block_size) for s, n in lengths.items()]
        return sum(blocks) <= self.block_manager.num_free()

    def extend(self, counts: Mapping[int, int]) -> None:
        if any(self.length(slot) + count > self.max_length for slot, count in counts.items()):
            raise RequestTooLong("beyond max_length")
        for slot, count in counts.items():
            if slot not in self.stored:
                self.block_manager.allocate(slot, 0)
                self.stored[slot] = []
            self.block_manager.append(slot, count)

    def free(self, slot: int) -> None:
        if slot in self.stored:
            self.block_manager.free(slot)
            del self.stored[slot]


class Model:
    """Nothing but its configuration."""

    def __init__(self, model_dir: str) -> None:
        self.config = LlamaConfig.from_folder(model_dir)


class Runner:
    """launch_prefill and launch_decode with logits from `next_logits`; both fail where `fail` says so."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.fail: dict[str, Exception] = {}
        self.launches: list[str] = []
        self.stream = None

    def reserve(self, max_num_tokens: int, max_num_seqs: int) -> None:
        self.max_num_tokens, self.max_num_seqs = max_num_tokens, max_num_seqs

    def launch_prefill(self, prompts: Sequence[Sequence[int]], cache: Cache, slots: Sequence[int]) -> Array:
        assert sum(map(len, prompts)) <= self.max_num_tokens
        for slot in slots:
            cache.free(slot)
        return self._launch("prefill", prompts, cache, slots)

    def launch_decode(self, ids: Sequence[int], cache: Cache, slots: Sequence[int]) -> Array:
        return self._launch("decode", [[token] for token in ids], cache, slots)

    def _launch(self, kind: str, added: Sequence[Sequence[int]], cache: Cache, slots: Sequence[int]) -> Array:
        assert 1 <= len(slots) == len(added) == len(set(slots)) <= self.max_num_seqs
        self._fail(f"before {kind}")
        cache.extend({slot: len(tokens) for slot, tokens in zip(slots, added, strict=True)})
        self._fail(f"in {kind}")
        for slot, tokens in zip(slots, added, strict=True):
            cache.stored[slot] += tokens
        self.launches.append(kind)
        return Array(np.stack([next_logits(cache.stored[slot]) for slot in slots]))

    def _fail(self, place: str) -> None:
        if place in self.fail:
            raise self.fail.pop(place)


def next_logits(tokens: Sequence[int]) -> np.ndarray:
    """[VOCAB] float32, without ties: random numbers whose seed is the whole text so far."""
    seed = zlib.crc32(np.asarray(tokens, np.int32).tobytes())
    return np.random.default_rng(seed).normal(scale=2, size=VOCAB).astype(np.float32)


def stream_alone(prompt: Sequence[int], params: SamplingParams, longest: int) -> tuple[list[int], str]:
    """(new tokens, finish reason) of a request that nothing else disturbs."""
    tokens, generator = list(prompt), np.random.default_rng(params.seed)
    while len(tokens) < min(len(prompt) + params.max_tokens, longest):
        tokens.append(sample(next_logits(tokens), params, generator))
        if tokens[-1] in EOS and not params.ignore_eos:
            return tokens[len(prompt) :], "stop"
    return tokens[len(prompt) :], "length"


def write_config(folder: Path) -> Path:
    """A folder with a config.json of this vocabulary, and no weights."""
    config = {
        "model_type": "llama",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": VOCAB,
        "max_position_embeddings": LONGEST,
        "eos_token_id": list(EOS),
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _make() -> Callable[..., np.ndarray]:
    return lambda shape, dtype: np.zeros(shape, dtype)


MODULES: dict[str, dict[str, Any]] = {
    "pycuda": {},
    "pycuda.autoprimaryctx": {},
    "pycuda.driver": {
        "pagelocked_empty": _make(),
        "memcpy_dtoh": copy_to_host,
        "memcpy_dtoh_async": copy_to_host,
    },
    "pycuda.gpuarray": {"GPUArray": Array, "empty": empty},
    "engine.model": {"LlamaModel": Model},
    "engine.model_runner": {"ModelRunner": Runner},
    "engine.paged_kv_cache": {"PagedKVCache": Cache},
}
ATTRIBUTES = {
    "pycuda.driver": ("pycuda", "driver"),
    "pycuda.gpuarray": ("pycuda", "gpuarray"),
    "pycuda.autoprimaryctx": ("pycuda", "autoprimaryctx"),
}
"""Submodule: (its package, its name there)."""
