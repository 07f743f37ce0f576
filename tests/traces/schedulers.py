"""Made-up engines for tests of the throughput bounds: sane ones of several kinds, and the ones that must be refused."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from given.requests import SamplingParams

from grader.worker.arguments import Handle

LLM = Handle(0, "LLM")


class Engine:
    """Stands in for a worker with one LLM: `call` runs the method. Policies override `admit` or `step`.

    Tokens are those of `successor`, or 0 without one.
    """

    ages = True
    """Whether a request that was overtaken often enough comes first."""

    def __init__(
        self, slots: int = 4, budget: float = float("inf"), successor: Any = None, eos: Sequence[int] = ()
    ) -> None:
        self.slots = slots
        self.budget = budget
        self.successor = successor
        self.eos = eos
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.prompts: dict[str, list[int]] = {}
        self.params: dict[str, SamplingParams] = {}
        self.tokens: dict[str, list[int]] = {}
        self.overtaken: Counter[str] = Counter()

    def call(self, target: Any, *arguments: Any) -> Any:
        return getattr(self, target[1])(*arguments)

    def add_request(self, name: str, prompt: list[int], params: SamplingParams) -> None:
        self.waiting.append(name)
        self.prompts[name], self.params[name], self.tokens[name] = prompt, params, []

    def abort(self, name: str) -> None:
        (self.running if name in self.running else self.waiting).remove(name)

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting or self.running)

    def stats(self) -> dict[str, int]:
        return {"running": len(self.running), "waiting": len(self.waiting)}

    def step(self) -> list[tuple[str, int, str | None]]:
        """Mixed: all that run decode, the admitted prefill in the same step."""
        decoding = list(self.running)
        return [self.give(name) for name in decoding + self.admit(self.budget - len(decoding))]

    def admit(self, budget: float) -> list[str]:
        admitted: list[str] = []
        while self.waiting and len(self.running) < self.slots:
            name = self.choose()
            if admitted and len(self.prompts[name]) > budget:
                break
            budget -= len(self.prompts[name])
            for older in self.waiting[: self.waiting.index(name)]:
                self.overtaken[older] += 1
            self.waiting.remove(name)
            self.running.append(name)
            admitted.append(name)
        return admitted

    def choose(self) -> str:
        """The waiting request with the least rank, but before it whoever was overtaken as often as there are slots."""
        old = [name for name in self.waiting if self.overtaken[name] >= self.slots]
        return old[0] if old and self.ages else min(self.waiting, key=self.rank)

    def rank(self, name: str) -> int:
        """The waiting with the least rank come first."""
        return 0

    def give(self, name: str) -> tuple[str, int, str | None]:
        tokens, params = self.tokens[name], self.params[name]
        last = tokens[-1] if tokens else self.prompts[name][-1]
        tokens.append(0 if self.successor is None else int(self.successor[last]))
        reason = "length" if len(tokens) == params.max_tokens else None
        if tokens[-1] in self.eos and not params.ignore_eos:
            reason = "stop"
        if reason:
            self.running.remove(name)
        return name, tokens[-1], reason


class PrefillFirst(Engine):
    """Prefills in steps of their own, before any decode."""

    def step(self) -> list[tuple[str, int, str | None]]:
        return [self.give(name) for name in self.admit(self.budget) or list(self.running)]


class ShortestPrompt(Engine):
    def rank(self, name: str) -> int:
        return len(self.prompts[name])


class ShortestPromptPrefillFirst(PrefillFirst, ShortestPrompt):
    pass


class ShortestAnswer(Engine):
    def rank(self, name: str) -> int:
        return self.params[name].max_tokens


class LongestAnswer(Engine):
    def rank(self, name: str) -> int:
        return -self.params[name].max_tokens


class StrictBudget(Engine):
    """Never prefills more than the budget leaves beside the decodes, not even one prompt."""

    def admit(self, budget: float) -> list[str]:
        return super().admit(budget) if self.waiting and len(self.prompts[self.waiting[0]]) <= budget else []


class Static(Engine):
    """A group runs until its last request has ended."""

    def admit(self, budget: float) -> list[str]:
        return [] if self.running else super().admit(budget)


class OneByOne(Engine):
    """One request at a time."""

    def __init__(self, slots: int = 4, *arguments: Any, **keywords: Any) -> None:
        super().__init__(1, *arguments, **keywords)


class OneTokenAStep(Engine):
    """Keeps its slots full, but gives only one of them a token in each step."""

    def step(self) -> list[tuple[str, int, str | None]]:
        self.admit(self.budget)
        self.running.append(self.running.pop(0)) if self.running else None
        return [self.give(self.running[-1])] if self.running else []


class NewestFirst(Engine):
    """Whoever came last is admitted first, however long the others have waited."""

    ages = False

    def rank(self, name: str) -> int:
        return -int(name[1:])


class PrefillStarves(Engine):
    """One prompt a step, and no decode as long as any request waits and a slot is free."""

    def step(self) -> list[tuple[str, int, str | None]]:
        admitted = self.admit(0)
        return [self.give(name) for name in admitted or list(self.running)]


SANE = (
    Engine,
    PrefillFirst,
    ShortestPrompt,
    ShortestPromptPrefillFirst,
    ShortestAnswer,
    LongestAnswer,
    StrictBudget,
)
