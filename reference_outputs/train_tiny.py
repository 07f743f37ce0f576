"""Train the `tiny` model: a Llama of 3.8 M parameters that writes recognisable lines of Shakespeare.

    python reference_outputs/train_tiny.py --corpus tinyshakespeare.txt --out reference_outputs/tiny/model

Needs the extra `reference` and, to finish in minutes, a GPU. Writes config.json, generation_config.json, tokenizer.json
and model.safetensors (bf16). The corpus is public-domain text; README.md beside this file states its origin.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

SEED = 1
VOCABULARY = 1024
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"]
END_IDS = [1, 2, 3]
CONTEXT = 384
"""Tokens of a training row: past the 128 from which the scaling of RoPE acts, and past position 256."""
BATCH = 64
PEAK_RATE = 2e-3
WARM_UP = 200
DROPPED = 0.1
"""Share of the hidden state that is dropped before the head, against learning the small corpus by heart."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=BATCH)
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    text = arguments.corpus.read_text(encoding="utf-8")
    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(text)
    tokenizer.save(str(arguments.out / "tokenizer.json"))
    ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids)
    split = len(ids) * 95 // 100
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LlamaForCausalLM(tiny_config()).to(device)
    train(model, ids[:split].to(device), arguments.steps, arguments.batch)
    model = model.to(torch.bfloat16)
    print(f"loss on held-out text, in bf16: {held_out_loss(model, ids[split:].to(device)):.3f}")
    print(sample(model, tokenizer))
    save(model, arguments.out)


def train_tokenizer(text: str) -> Tokenizer:
    """Byte-level BPE, so that every byte string has a spelling."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def tiny_config() -> LlamaConfig:
    """Group size 3 differs from the 4 key/value heads; wavelengths above 128 positions are scaled, so from there on."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=288,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=12,
        num_key_value_heads=4,
        head_dim=24,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=END_IDS,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    )


def train(model: LlamaForCausalLM, ids: torch.Tensor, steps: int, batch: int) -> None:
    """AdamW over random rows of the corpus, each after the begin-of-text id; float32 weights under bf16 autocast."""
    decayed = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": decayed, "weight_decay": 0.3}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))
    generator = torch.Generator().manual_seed(SEED)
    start = time.monotonic()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        loss = loss_of(model, random_rows(ids, batch, generator), DROPPED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}, {time.monotonic() - start:.0f} s", flush=True)


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine to a tenth of the peak."""
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    return PEAK_RATE * (0.55 + 0.45 * math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP)))


def random_rows(ids: torch.Tensor, batch: int, generator: torch.Generator) -> torch.Tensor:
    """[batch, CONTEXT + 1]: rows of the corpus from random places; half of them begin with the begin-of-text id."""
    starts = torch.randint(len(ids) - CONTEXT, (batch,), generator=generator)
    rows = torch.stack([ids[start : start + CONTEXT + 1] for start in starts.tolist()])
    rows[: batch // 2, 0] = 0
    return rows


def loss_of(model: LlamaForCausalLM, rows: torch.Tensor, dropped: float) -> torch.Tensor:
    with torch.autocast(rows.device.type, dtype=torch.bfloat16):
        hidden = model.model(rows[:, :-1], use_cache=False).last_hidden_state
        hidden = torch.nn.functional.dropout(hidden, dropped)
        logits = model.lm_head(hidden)
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, ids: torch.Tensor) -> float:
    rows = random_rows(ids, 64, torch.Generator().manual_seed(0))
    return float(loss_of(model, rows, 0.0))


def sample(model: LlamaForCausalLM, tokenizer: Tokenizer) -> str:
    """What the model writes greedily after a beginning."""
    prompt = [0, *tokenizer.encode("ROMEO:\n").ids]
    ids = torch.tensor([prompt], device=model.device)
    return tokenizer.decode(model.generate(ids, max_new_tokens=80, do_sample=False, pad_token_id=0)[0].tolist())


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Weights under Hugging Face's names, without the tied head; both configurations."""
    weights = {n: w.contiguous().cpu() for n, w in model.state_dict().items() if n != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.dtype = torch.bfloat16
    model.config.save_pretrained(folder)
    generation = {"bos_token_id": 0, "eos_token_id": END_IDS, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


if __name__ == "__main__":
    main()
