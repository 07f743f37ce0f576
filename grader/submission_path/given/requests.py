"""What passes between an engine and whoever uses it: how to sample, what a step gives, and the errors of a request."""

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one request are chosen; the names are vLLM's.

    Raises ValueError, naming the field, for a value that means nothing.
    """

    temperature: float = 1.0
    """Divides the logits; 0 takes the largest logit (greedy), and top_k and top_p then change nothing."""
    top_k: int = 0
    """Only this many of the most probable tokens; 0 for all."""
    top_p: float = 1.0
    """Only the smallest set of the most probable tokens whose mass reaches this; in (0, 1]."""
    max_tokens: int = 16
    """At most this many new tokens."""
    seed: int | None = None
    """Seed of the request's own random numbers; None draws another one each time."""
    ignore_eos: bool = False
    """Go on after an end-of-sequence token."""

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be a number from 0 on, got {self.temperature!r}")
        if not _is_integer(self.top_k) or self.top_k < 0:
            raise ValueError(f"top_k must be a whole number from 0 (all tokens) on, got {self.top_k!r}")
        if not _is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be a number above 0 and at most 1, got {self.top_p!r}")
        if not _is_integer(self.max_tokens) or self.max_tokens < 0:
            raise ValueError(f"max_tokens must be a whole number from 0 on, got {self.max_tokens!r}")
        if self.seed is not None and (not _is_integer(self.seed) or self.seed < 0):
            raise ValueError(f"seed must be None or a whole number from 0 on, got {self.seed!r}")


class StepOutput(NamedTuple):
    """One new token of one request."""

    request_id: str
    token: int
    finish_reason: str | None
    """None while the request goes on; "stop" after an end-of-sequence token, which is `token`; "length" when
    max_tokens or the longest context is reached."""


class Completion(NamedTuple):
    """All new tokens of one request, and their text where the prompt was text (without an end-of-sequence token)."""

    token_ids: list[int]
    text: str | None
    finish_reason: str


class RequestTooLong(ValueError):
    """A prompt leaves no room for a new token in the context, or in the cache even when nothing else runs."""


class OutOfBlocks(RuntimeError):
    """The cache has too few free blocks (a contiguous cache: positions); nothing was taken."""


class UnknownRequest(KeyError):
    """No waiting or running request has this id."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a KeyError would put quotes around it


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
