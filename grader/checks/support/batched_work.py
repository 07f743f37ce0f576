"""Judges the matrix products behind the tokens of a trace: that each step computes what it gives, and together.

Steps alone could be counted for an engine that computes answers one after the other and then hands them out. So its
products are counted too: a *pass* multiplies each weight once, whatever the number of its rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from given.config import LlamaConfig

from grader.checking.api import Failure, Handle, Worker
from grader.checks.support.cached_model import multiplications
from grader.traces.drive import TraceRun, expect_at_most

LINEAR_LAYERS = 7
"""Matrix products of a block, when none of them are joined."""


@dataclass
class Accountant:
    """A Caller for `drive` that counts the products of each step, those of other calls before it included."""

    emulator: Worker
    products: list[int] = field(default_factory=lambda: [0])
    multiplications: list[int] = field(default_factory=lambda: [0])
    """Of each step; the last entry is of what came after."""

    def call(self, target: Any, *arguments: Any) -> Any:
        with self.emulator.observe() as seen:
            result = self.emulator.call(target, *arguments)
        self.products[-1] += seen.gemms
        self.multiplications[-1] += sum(call.m * call.n * call.k for call in seen.gemm_calls)
        if target[1] == "step":
            self.products.append(0)
            self.multiplications.append(0)
        return result


def serve_in_passes(
    emulator: Worker, llm: Handle, config: LlamaConfig, serve: Callable[[Accountant, Handle], TraceRun]
) -> TraceRun:
    """What `serve` returns; Failure unless its tokens were computed step by step, in one pass for all that decode."""
    account = Accountant(emulator)
    seen = serve(account, llm)
    token = multiplications(config, 1, 1)
    done = 0
    for number, outputs in enumerate(seen.steps):
        before, done = done, account.multiplications[number]
        if before + done < len(outputs) * token:  # a step may give what the one before it has begun
            told = f"Step {number} gave {len(outputs)} tokens and made {done:,} multiplications in matrix products"
            needed = f"{len(outputs) * token:,} are needed: a token must be computed, by linear.py, for the step"
            raise Failure("RUNTIME_ERROR", f"{told}; {needed} that gives it.", {"figure": done})
    passes = len(seen.steps) + len(seen.order) + seen.interruptions
    told = f"matrix products for {len(seen.steps)} steps and {len(seen.order)} prompts"
    allowed = passes * (LINEAR_LAYERS * config.num_layers + 1)
    expect_at_most(told, sum(account.products), allowed, "One pass serves all requests that decode in a step.")
    return seen
