"""A small model whose next token is a fixed function of the current one, so that every answer is known exactly.

What attention and the feed-forward layers add is zero, so the residual stream is the embedding of the current token
all the way up: a row of 64 signs, which RMSNorm and bf16 leave as it is. The head has a row for each token: the signs
of the token before it. The logit of the right token is 64, and every other is at least MARGIN less, in any order of
summation; drawing at temperature 1 gives another token less than once in 10^7 draws.

All tokens form one cycle, so streams repeat only after `vocab_size` tokens, and two requests are never at the same
token unless one is a whole number of steps behind the other. The end-of-sequence ids lie evenly spaced on it:
`prompt_for` finds prompts whose answer ends after a given number of tokens.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from given.config import LlamaConfig
from given.contracts import BF16
from numpy.random import Generator
from numpy.typing import NDArray

from grader.model.weight_shapes import weight_shapes

HIDDEN = 64
MARGIN = 16
"""The logit of the next token is at least this much above every other."""


@dataclass(frozen=True)
class ScriptedModel:
    """A model's folder (config.json, generation_config.json, model.safetensors) and what it answers."""

    folder: Path
    config: LlamaConfig
    successor: NDArray[np.int32]
    """[vocab_size]: the token that follows each token."""
    steps_to_end: NDArray[np.int32]
    """[vocab_size]: how many tokens follow each token until one is an end-of-sequence token, that one counted; 0
    everywhere when there are no such tokens."""

    def continuation(self, token: int, count: int) -> list[int]:
        """The `count` tokens after `token`, whether or not an end-of-sequence token is among them."""
        tokens = []
        for _ in range(count):
            token = int(self.successor[token])
            tokens.append(token)
        return tokens

    def stream(
        self, prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool = False, max_length: int | None = None
    ) -> tuple[list[int], str]:
        """(new tokens, finish reason) of a request; prompt and new tokens together are at most `max_length`."""
        count = max_tokens if max_length is None else min(max_tokens, max_length - len(prompt))
        steps = int(self.steps_to_end[prompt[-1]])
        stops = 0 < steps <= count and not ignore_eos
        return self.continuation(int(prompt[-1]), steps if stops else count), "stop" if stops else "length"

    def longest_answer(self) -> int:
        """The largest length that `prompt_for` can give."""
        return int(self.steps_to_end.max())

    def prompt(self, rng: Generator, length: int) -> list[int]:
        """Random tokens; they may contain end-of-sequence ids, which mean nothing in a prompt."""
        return [int(token) for token in rng.integers(self.config.vocab_size, size=length)]

    def prompt_for(self, rng: Generator, steps: int, length: int = 1, eos: int | None = None) -> list[int]:
        """`length` random tokens, after which the `steps`-th new token is the first end-of-sequence token, `eos` if one
        is given. Raises ValueError when no token is that far from its end."""
        last = np.flatnonzero(self.steps_to_end == steps)
        if eos is not None:
            last = np.array([token for token in last.tolist() if self.continuation(token, steps)[-1] == eos])
        if steps < 1 or not last.size:
            raise ValueError(f"no answer ends after {steps} tokens; the longest has {self.longest_answer()}")
        return [*self.prompt(rng, length - 1), int(rng.choice(last))]


def scripted_model(
    rng: Generator,
    folder: Path,
    *,
    vocab_size: int = 1024,
    max_position_embeddings: int = 512,
    eos_token_ids: Sequence[int] | None = None,
) -> ScriptedModel:
    """Draw a scripted model and write it into `folder`, which exists. Four end-of-sequence ids are drawn if None."""
    if eos_token_ids is None:
        eos_token_ids = [int(token) for token in rng.choice(vocab_size, 4, replace=False)]
    _write_settings(folder, vocab_size, max_position_embeddings, eos_token_ids)
    config = LlamaConfig.from_folder(folder)
    cycle = _draw_cycle(rng, vocab_size, eos_token_ids)
    successor = np.empty(vocab_size, np.int32)
    successor[cycle] = np.roll(cycle, -1)
    safetensors.numpy.save_file(_draw_weights(rng, config, successor), folder / "model.safetensors", {"format": "pt"})
    return ScriptedModel(folder, config, successor, _steps_to_end(cycle, eos_token_ids))


def _write_settings(folder: Path, vocab_size: int, max_position_embeddings: int, eos_token_ids: Sequence[int]) -> None:
    """config.json, which names one end-of-sequence id, and generation_config.json with all, as Llama 3 comes."""
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": vocab_size,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": max_position_embeddings,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
    }
    if eos_token_ids:
        config["eos_token_id"] = eos_token_ids[0]
    generation = {"eos_token_id": list(eos_token_ids)}
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _draw_cycle(rng: Generator, vocab_size: int, eos_token_ids: Sequence[int]) -> NDArray[np.int32]:
    """All tokens in an order of which each part, of about the same length, ends with an end-of-sequence id."""
    others = np.setdiff1d(np.arange(vocab_size, dtype=np.int32), np.asarray(eos_token_ids, np.int32))
    rng.shuffle(others)
    if not eos_token_ids:
        return others
    parts = np.array_split(others, len(eos_token_ids))
    return np.concatenate([np.append(part, np.int32(eos)) for part, eos in zip(parts, eos_token_ids, strict=True)])


def _steps_to_end(cycle: NDArray[np.int32], eos_token_ids: Sequence[int]) -> NDArray[np.int32]:
    steps = np.zeros(len(cycle), np.int32)
    if not eos_token_ids:
        return steps
    following = 0
    for token in np.concatenate([cycle, cycle])[::-1]:  # twice round, so that the first way round knows its end
        steps[token] = following
        following = 1 if token in eos_token_ids else following + 1
    return steps


def _draw_weights(rng: Generator, config: LlamaConfig, successor: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
    """Keys, values and gates are random numbers, so that caches hold something; their projections back are zero."""
    weights: dict[str, NDArray[Any]] = {}
    for name, shape in weight_shapes(config).items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, BF16)
        elif "o_proj" in name or "down_proj" in name:
            weights[name] = np.zeros(shape, BF16)
        else:
            weights[name] = (shape[1] ** -0.5 * rng.standard_normal(shape, np.float32)).astype(BF16)
    signs = _draw_signs(rng, config.vocab_size)
    weights["model.embed_tokens.weight"] = signs.astype(BF16)
    weights["lm_head.weight"] = np.empty_like(weights["model.embed_tokens.weight"])
    weights["lm_head.weight"][successor] = signs
    return weights


def _draw_signs(rng: Generator, count: int) -> NDArray[np.float32]:
    """[count, HIDDEN] rows of ±1 of which every two have a scalar product ≤ HIDDEN − MARGIN."""
    while True:
        signs = np.where(rng.integers(2, size=(count, HIDDEN)), np.float32(1), np.float32(-1))
        products = signs @ signs.T
        np.fill_diagonal(products, 0)
        if products.max(initial=0) <= HIDDEN - MARGIN:
            return signs
