"""Check the stored reference outputs: recompute them with transformers on the CPU and compare.

    python reference_outputs/verify.py [NAME ...]

NAME is that of a folder beside this file, `tiny` when none is given. Exit code 1, and a line for each difference,
unless

- every file's sha256 is the one that manifest.json records, and no file is missing or extra;
- the prompts are those of prompts.json, and the tokenizer still turns their texts into the recorded ids;
- float32 values differ from the recomputed ones by at most 1e-5 of the array's largest value (another processor
  sums in another order: 2e-6 was seen);
- bf16 values: the rms difference of each row is at most 2 × the distance of stored bf16 from stored float32, that row's
  or the median row's (equal on the machine that built them; another order of summation rounds elsewhere).
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import safetensors.torch
import torch
from build import HERE, compute, file_names, locate, read_prompts, sha256

FLOAT32_TOLERANCE = 1e-5
BF16_TOLERANCE = 2.0


def main() -> int:
    code = 0
    for name in sys.argv[1:] or ["tiny"]:
        folder = HERE / name
        differences = list(differing_files(folder)) or list(differing_values(folder))
        for difference in differences:
            print(f"{name}: {difference}")
            code = 1
        if not differences:
            print(f"{name}: the reference outputs are those that transformers computes")
    return code


def differing_files(folder: Path) -> Iterator[str]:
    recorded = json.loads((folder / "expected" / "manifest.json").read_text(encoding="utf-8"))["files"]
    for name in file_names(folder):
        if name not in recorded:
            yield f"{name}: the manifest does not know this file"
    for name, digest in recorded.items():
        if not locate(folder, name).is_file():
            yield f"{name}: missing"
        elif sha256(locate(folder, name)) != digest:
            yield f"{name}: its sha256 is not the recorded one"


def differing_values(folder: Path) -> Iterator[str]:
    manifest = json.loads((folder / "expected" / "manifest.json").read_text(encoding="utf-8"))
    prompts = read_prompts(folder)
    if prompts != manifest["prompts"]:
        yield "the manifest's prompts are not those of prompts.json"
        return
    for name, recomputed in compute(folder, prompts):
        stored = safetensors.torch.load_file(folder / "expected" / f"{name}.safetensors")
        if {key: tensor.shape for key, tensor in stored.items()} != {key: t.shape for key, t in recomputed.items()}:
            yield f"{name}: names or shapes of the tensors differ"
            continue
        for kind in sorted({key.partition(".")[2] for key in stored}):
            yield from differing_rows(f"{name}, {kind}", kind, stored, recomputed)


def differing_rows(
    title: str, kind: str, stored: dict[str, torch.Tensor], recomputed: dict[str, torch.Tensor]
) -> Iterator[str]:
    exact, rounded = stored[f"float32.{kind}"], stored[f"bf16.{kind}"].float()
    error = (exact - recomputed[f"float32.{kind}"]).abs().max().item()
    allowed = FLOAT32_TOLERANCE * exact.abs().max().item()
    if not error <= allowed:
        yield f"{title} in float32: a value differs by {error:.2g}, allowed {allowed:.2g}"
    distances = row_rms(rounded - exact)
    allowed_rows = BF16_TOLERANCE * torch.maximum(distances, distances.median(dim=-1, keepdim=True).values)
    wrong = ~(row_rms(rounded - recomputed[f"bf16.{kind}"].float()) <= allowed_rows)
    if wrong.any():
        yield f"{title} in bf16: {int(wrong.sum())} rows differ by more than bf16's own error"


def row_rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(dim=-1).sqrt()


if __name__ == "__main__":
    sys.exit(main())
