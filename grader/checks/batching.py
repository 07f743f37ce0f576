"""Batches of a submission's model, held against what each of their sequences gives alone."""

from collections.abc import Sequence

from grader.checking.api import expect_rows
from grader.checks.cached_model import CachedModel
from grader.oracle.model import Reference


def expect_batch(
    model: CachedModel,
    prompts: Sequence[Reference],
    lengths: Sequence[int],
    sequences: Sequence[int] | None,
    steps: int,
) -> None:
    """Prefill the first lengths[b] tokens of each prompt, decode the next `steps`, and judge every row of logits.

    The sequences are decoded in another order in each step, if they are given.
    """
    logits = model.prefill_batch([p.ids[:n].tolist() for p, n in zip(prompts, lengths, strict=True)], sequences)
    order = list(range(len(prompts)))
    for step in range(steps + 1):
        if step:
            tokens = [int(prompts[b].ids[lengths[b] + step - 1]) for b in order]
            logits = model.decode_batch(tokens, sequences and [sequences[b] for b in order])
        for row, b in enumerate(order):
            rows = slice(lengths[b] + step - 1, lengths[b] + step)
            name = f"the row of logits of sequence {b if sequences is None else sequences[b]}"
            got, reference = logits[row : row + 1], prompts[b]
            expect_rows(got, reference.float32.logits[rows], reference.bf16.logits[rows], name)
        if sequences is not None:
            order = order[1:] + order[:1]
