"""Train the `tiny` model: a Llama of 3.8 million parameters that writes lines of a play.

    python reference_outputs/train_tiny.py --corpus tinyshakespeare.txt --out reference_outputs/tiny/model

The corpus is plain text whose speeches are parted by blank lines. Writes config.json, generation_config.json,
model.safetensors (bf16), tokenizer.json, tokenizer_config.json and training.json (how it was trained, run by run, when
--start continues from an earlier run's folder). Takes a minute or two on a GPU. Sums of floating-point numbers differ
between machines: training again gives another model, and everything that build.py derives from it must be rebuilt.
"""

import argparse
import hashlib
import json
import math
import platform
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import tokenizers
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SEED = 20
HELD_OUT = 0.05
"""The share of speeches, at the corpus's end, that measures the loss and is never trained on."""

BEGIN = "<|begin_of_text|>"
ENDS = ("<|end_of_text|>", "<|eot_id|>")
"""A document ends with one or the other, so that an engine that stops at one of them only is soon found out."""
SPECIAL = (BEGIN, ENDS[0], "<|eom_id|>", ENDS[1])
MEAN_SPEECHES = 6
"""Speeches in a document, on average."""
SHORTEST_PASSAGE = 32
"""Tokens of a passage that a row repeats, at least; half a row at most."""

VOCABULARY = 1024
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 288,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 24,
    "vocab_size": VOCABULARY,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    # Wavelengths of the 12 pairs: 6, 19, 56, 167, 498 …: two stay, the third is blended, the others are stretched.
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "initializer_range": 0.02,
    "bos_token_id": VOCABULARY - len(SPECIAL),
    "eos_token_id": [VOCABULARY - 3, VOCABULARY - 2, VOCABULARY - 1],
    "torch_dtype": "bfloat16",
}

LEARNING_RATE = 2e-3
WARMUP = 50
WEIGHT_DECAY = 0.1
MEASURE_EVERY = 50
PATIENCE = 6
"""Training ends when so many measurements in a row have not lowered the validation loss."""
NORM_SPREAD = 0.4
"""Standard deviation of the logarithms of the norm weights."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="plain text, speeches parted by blank lines")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model into")
    parser.add_argument("--start", type=Path, help="folder of an earlier run, to continue from its weights")
    parser.add_argument("--steps", type=int, default=800, help="steps of the schedule; training may end before")
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--repeats", type=float, default=0.5, help="share of rows that repeat a passage")
    parser.add_argument("--dropout", type=float, default=0.15)
    parser.add_argument("--batch", type=int, default=32, help="rows a step")
    parser.add_argument("--length", type=int, default=CONFIG["max_position_embeddings"], help="tokens a row")
    options = parser.parse_args()

    torch.manual_seed(SEED)
    text = options.corpus.read_text(encoding="utf-8")
    speeches = [f"{speech.strip()}\n\n" for speech in text.split("\n\n") if speech.strip()]
    held_out = round(HELD_OUT * len(speeches))
    tokenizer = train_tokenizer(speeches)
    ids = [encoding.ids for encoding in tokenizer.encode_batch(speeches, add_special_tokens=False)]
    print(f"{len(speeches)} speeches, {len(text)} characters, {sum(map(len, ids))} tokens")

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).to(device)
    if options.start:
        load_weights(model, safetensors.torch.load_file(options.start / "model.safetensors"))
    batches = Batches(ids[:-held_out], options.batch, options.length, options.repeats, SEED)
    validation = [rows for share in (0, 1) for rows in Batches(ids[-held_out:], 8, options.length, share, SEED).take(2)]
    add_dropout(model, options.dropout)
    history = train(model, batches, validation, options.steps, options.rate)

    spread_norm_weights(model)
    weights = {name: weight.to(torch.bfloat16).cpu() for name, weight in unique_weights(model).items()}
    load_weights(model, weights)
    losses = {
        "best_step": MEASURE_EVERY * history.index(min(history)),
        "validation_loss": round(loss_of(model, validation[:2]), 4),
        "validation_loss_of_repeated_passages": round(loss_of(model, validation[2:]), 4),
    }
    print(losses)
    save(options.out, tokenizer, weights)
    record_run(options, text, losses)
    print(write_lines(model, tokenizer, "ROMEO:\n"))


def train_tokenizer(speeches: list[str]) -> Tokenizer:
    """Byte-level BPE; words and punctuation keep the space before them, every other white space stands alone."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(r" ?\w+| ?[^\s\w]+|\s"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(speeches, trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    begin = (BEGIN, tokenizer.token_to_id(BEGIN))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[begin]
    )
    if tokenizer.get_vocab_size() != VOCABULARY or begin[1] != CONFIG["bos_token_id"]:
        raise SystemExit(f"the corpus gives a vocabulary of {tokenizer.get_vocab_size()} tokens, not {VOCABULARY}")
    return tokenizer


class Batches:
    """Batches of token ids [rows, length]: documents of consecutive speeches, one after the other.

    A share `repeats` of the rows repeats one passage instead, so that the model learns to look far back.
    """

    def __init__(self, speeches: list[list[int]], rows: int, length: int, repeats: float, seed: int) -> None:
        self.speeches = speeches
        self.rows = rows
        self.length = length
        self.repeats = repeats
        self.random = random.Random(seed)

    def take(self, count: int) -> Iterator[torch.Tensor]:
        for _ in range(count):
            yield torch.tensor([self._row() for _ in range(self.rows)])

    def _row(self) -> list[int]:
        row: list[int] = []
        while len(row) < self.length:
            row += self._document()
        if self.random.random() < self.repeats:
            passage = row[1 : 1 + self.random.randint(SHORTEST_PASSAGE, max(SHORTEST_PASSAGE, self.length // 2))]
            row = row[:1] + passage * (1 + self.length // len(passage))
        return row[: self.length]

    def _document(self) -> list[int]:
        begin, ends = CONFIG["bos_token_id"], (CONFIG["eos_token_id"][0], CONFIG["eos_token_id"][-1])
        first = self.random.randrange(len(self.speeches))
        count = 1 + int(self.random.expovariate(1 / MEAN_SPEECHES))
        inner = [token for speech in self.speeches[first : first + count] for token in speech]
        return [begin, *inner, self.random.choice(ends)]


def train(
    model: transformers.LlamaForCausalLM,
    batches: Batches,
    validation: list[torch.Tensor],
    steps: int,
    rate: float,
) -> list[float]:
    """Train in place and leave the weights of the lowest validation loss in the model.

    Returns that loss at the start and after each MEASURE_EVERY steps.
    """
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    norms = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": norms, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, steps))
    history = [loss_of(model, validation)]
    best = {name: weight.clone() for name, weight in unique_weights(model).items()}
    for step, ids in enumerate(batches.take(steps), start=1):
        model.train()
        loss = next_token_loss(model, ids)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % MEASURE_EVERY:
            continue
        history.append(loss_of(model, validation))
        print(f"step {step}: training loss {loss.item():.3f}, validation loss {history[-1]:.3f}", flush=True)
        if history[-1] == min(history):
            best = {name: weight.clone() for name, weight in unique_weights(model).items()}
        if min(history) < min(history[-PATIENCE:]):
            break
    load_weights(model, best)
    return history


def learning_rate_factor(step: int, steps: int) -> float:
    """Linear rise, then a cosine down to a tenth."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, steps - WARMUP)))


def add_dropout(model: transformers.LlamaForCausalLM, share: float) -> None:
    """Drop out what each layer adds to the residual stream, in training mode only; the saved model has none of it."""

    def drop(module: torch.nn.Module, _: Any, output: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(output, share, module.training)

    for layer in model.model.layers:
        layer.self_attn.o_proj.register_forward_hook(drop)
        layer.mlp.down_proj.register_forward_hook(drop)
    model.model.embed_tokens.register_forward_hook(drop)


def next_token_loss(model: transformers.LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of each token given those before it."""
    ids = ids.to(model.device)
    with torch.autocast(model.device.type, torch.bfloat16):
        logits = model(ids[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


@torch.no_grad()
def loss_of(model: transformers.LlamaForCausalLM, batches: list[torch.Tensor]) -> float:
    model.eval()
    return sum(next_token_loss(model, ids).item() for ids in batches) / len(batches)


def unique_weights(model: transformers.LlamaForCausalLM) -> dict[str, torch.Tensor]:
    """The parameters by name; the head, which is the embedding, is left out."""
    return {name: weight.detach() for name, weight in model.named_parameters() if name != "lm_head.weight"}


def load_weights(model: transformers.LlamaForCausalLM, weights: dict[str, torch.Tensor]) -> None:
    model.load_state_dict({name: weight.float() for name, weight in weights.items()}, strict=False)


@torch.no_grad()
def spread_norm_weights(model: transformers.LlamaForCausalLM) -> None:
    """Give the norms' weights a spread without changing what the model computes.

    In so short a training they stay near 1, and an engine that ignores them would hardly show. Each channel's weight
    is replaced by a random one and the columns of the matrices that read the channel are scaled to make up for it.
    The last norm stays: the head that reads it is tied.
    """
    generator = torch.Generator().manual_seed(SEED)
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for norm, readers in (
            (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
            (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
        ):
            spread = torch.randn(norm.weight.shape, generator=generator).mul(NORM_SPREAD).exp().to(norm.weight.device)
            for reader in readers:
                reader.weight *= norm.weight / spread
            norm.weight.copy_(spread)


def save(folder: Path, tokenizer: Tokenizer, weights: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # the library writes files that only their owner can read
    tokenizer.save(str(folder / "tokenizer.json"))
    generation = {"bos_token_id": CONFIG["bos_token_id"], "eos_token_id": CONFIG["eos_token_id"]}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": ENDS[0],
        "model_max_length": CONFIG["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
    }
    for name, content in (
        ("config.json", CONFIG),
        ("generation_config.json", generation),
        ("tokenizer_config.json", tokenizer_config),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def record_run(options: argparse.Namespace, text: str, losses: dict[str, float]) -> None:
    """Write training.json: this run after those of the folder that it started from."""
    earlier = json.loads((options.start / "training.json").read_text(encoding="utf-8")) if options.start else []
    packages = (torch, transformers, tokenizers, safetensors)
    settings = {name: value for name, value in vars(options).items() if not isinstance(value, Path | None)}
    run = {
        "corpus_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "seed": SEED,
        **settings,
        **losses,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "versions": {package.__name__: package.__version__ for package in packages},
    }
    content = json.dumps([*earlier, run], indent=2) + "\n"
    (options.out / "training.json").write_text(content, encoding="utf-8")


@torch.no_grad()
def write_lines(model: transformers.LlamaForCausalLM, tokenizer: Tokenizer, prompt: str) -> str:
    """What the model goes on to write after the prompt, sampled."""
    ids = torch.tensor([tokenizer.encode(prompt).ids], device=model.device)
    output = model.generate(ids, max_new_tokens=200, do_sample=True, temperature=0.7, pad_token_id=0)
    return tokenizer.decode(output[0].tolist(), skip_special_tokens=False)


if __name__ == "__main__":
    main()
