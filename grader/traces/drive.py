"""Runs a trace on a submission's engine step by step, records who got which token when, and judges it by counting.

`drive` makes every call itself and believes nothing but the tokens that come back; `TraceRun` is what it saw. The
`expect_…` functions hold that against bounds which the trace alone gives (grader/traces/trace.py) and raise Failure
TOO_SLOW. Counts are the same on any machine; time is judged apart (grader/throughput/timing.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

from grader.checking.api import expect_error
from grader.failure import Failure
from grader.text import clean_line
from grader.traces.answers import SEVERAL_ENDS, miscounted, read_step
from grader.traces.trace import Trace, TraceRequest, allowed_decode_steps
from grader.worker.arguments import Handle
from grader.worker.student_errors import StudentError

IDLE_STEPS = 16
"""What is allowed beyond the steps of an engine that runs one request after the other."""

OUT_OF_BLOCKS = "Before a step decodes, requests must be preempted until can_extend says that all others have room."


class Caller(Protocol):
    """What `drive` needs of a Worker."""

    def call(self, target: Any, *arguments: Any) -> Any: ...


@dataclass
class TraceRun:
    """What the parent saw of one run of a trace."""

    order: dict[str, int] = field(default_factory=dict)
    """The step before which each request was added, in the order of adding."""
    steps: list[dict[str, int]] = field(default_factory=list)
    """{request: token} of each step."""
    pending: list[int] = field(default_factory=list)
    """How many requests were unfinished before each step."""
    tokens: dict[str, list[int]] = field(default_factory=dict)
    """The tokens of each request so far, also of those that were aborted."""
    reasons: dict[str, str] = field(default_factory=dict)
    """The finish reason of each request that ended by itself."""
    aborted: set[str] = field(default_factory=set)

    @property
    def answers(self) -> dict[str, tuple[list[int], str]]:
        """{request: (tokens, finish reason)} of all that ended by themselves, as `expect_answers` takes them."""
        return {name: (self.tokens[name], reason) for name, reason in self.reasons.items()}

    @cached_property
    def received(self) -> dict[str, list[int]]:
        """The numbers of the steps in which each request received a token."""
        received: dict[str, list[int]] = {name: [] for name in self.order}
        for number, outputs in enumerate(self.steps):
            for name in outputs.keys() & received.keys():
                received[name].append(number)
        return received

    @cached_property
    def decodes(self) -> list[int]:
        """How many requests that already had a token got one, in each step."""
        return [sum(self.received[name][0] < number for name in outputs) for number, outputs in enumerate(self.steps)]

    @property
    def decode_steps(self) -> int:
        return sum(count > 0 for count in self.decodes)

    @property
    def other_steps(self) -> int:
        """Steps without a decode although requests were unfinished: prefills only, or nothing at all."""
        return sum(not count and pending > 0 for count, pending in zip(self.decodes, self.pending, strict=True))

    @property
    def most_running(self) -> int:
        """The most requests that received a token in one step."""
        return max(map(len, self.steps), default=0)

    @property
    def tokens_per_step(self) -> float:
        return sum(map(len, self.steps)) / max(1, len(self.steps))

    @property
    def longest_wait(self) -> tuple[int, str]:
        """(steps, request): the most steps in a row in which a request that had begun and not ended got nothing."""
        waits = [
            (after - before - 1, name) for name, steps in self.received.items() for before, after in pairwise(steps)
        ]
        return max(waits, default=(0, ""))

    @property
    def interruptions(self) -> int:
        """How often a request that had begun got nothing while others decoded: as often, at least, as a preemption."""
        return sum(
            any(self.decodes[before + 1 : after])
            for steps in self.received.values()
            for before, after in pairwise(steps)
        )

    @property
    def most_overtaken(self) -> tuple[int, str]:
        """(count, request): the most later requests whose first token came in an earlier step than the request's."""
        names = [name for name in self.order if self.received[name]]
        first = {name: self.received[name][0] for name in names}
        counts = [
            (sum(first[later] < first[name] for later in names[index + 1 :]), name) for index, name in enumerate(names)
        ]
        return max(counts, default=(0, ""))


def drive(
    worker: Caller,
    llm: Handle,
    trace: Trace,
    vocab_size: int,
    judge: Callable[[TraceRun], None] = lambda seen: None,
) -> TraceRun:
    """Run the trace on an LLM and return what it gave; Failure when that has not the form it must have.

    Requests are added before the step of their arrival and aborted as the trace says. It ends when all are finished
    or aborted; then the engine must have nothing left. An engine that needs more steps than one request after the other
    takes is TOO_SLOW.

    `judge` raises Failure when a token so far is wrong. It is asked before any other Failure: a token too many, or one
    too few, says less than the wrong token before it. An exception of the submission says enough.
    """
    run = _Run(worker, llm, vocab_size)
    try:
        _run_trace(run, trace)
    except StudentError:
        raise
    except Failure:
        judge(run.seen)
        raise
    return run.seen


def _run_trace(run: "_Run", trace: Trace) -> None:
    coming = list(trace)
    limit = sum(request.tokens + 1 for request in trace) + max((r.arrival for r in trace), default=0) + IDLE_STEPS
    while coming or run.live:
        if len(run.seen.steps) == limit:
            raise _too_many_steps(run, limit)
        while coming and coming[0].arrival <= len(run.seen.steps):
            run.add(coming.pop(0))
        run.step()
        run.abort()
    run.end()


class _Run:
    """One run of a trace; `live` are the requests that are added and not ended."""

    def __init__(self, worker: Caller, llm: Handle, vocab_size: int) -> None:
        self.worker = worker
        self.llm = llm
        self.vocab_size = vocab_size
        self.live: dict[str, TraceRequest] = {}
        self.seen = TraceRun()

    def add(self, request: TraceRequest) -> None:
        if request.error is not None:
            called = f'add_request("{request.id}", …), with a prompt of {len(request.prompt)} tokens,'
            expect_error(lambda: self._add(request), request.error, called=called, because=request.because)
            return
        self._add(request)
        self.live[request.id] = request
        self.seen.order[request.id] = len(self.seen.steps)
        self.seen.tokens[request.id] = []

    def _add(self, request: TraceRequest) -> None:
        self.worker.call(self.llm.method("add_request"), request.id, list(request.prompt), request.params)

    def step(self) -> None:
        self.seen.pending.append(len(self.live))
        try:
            outputs = read_step(self.worker.call(self.llm.method("step")), self.vocab_size)
        except StudentError as error:
            if "OutOfBlocks" in error.type_names:
                error.evidence["hint"] = OUT_OF_BLOCKS
            raise
        self.seen.steps.append({output.request_id: output.token for output in outputs})
        for name, token, reason in outputs:
            self._take(name, token, reason)

    def _take(self, name: str, token: int, reason: str | None) -> None:
        if name not in self.live:
            raise Failure("INCORRECT_VALUE", f'A step gave a token to "{name}", {self._what_became_of(name)}.')
        request, tokens = self.live[name], self.seen.tokens[name]
        tokens.append(token)
        if len(tokens) > request.tokens and request.abort_after is None:
            raise _too_long(request, len(tokens))
        if reason is None and len(tokens) >= request.params.max_tokens:
            told = f'Request "{name}" has {len(tokens)} of {len(tokens)} tokens (max_tokens), but no finish reason.'
            raise Failure("INCORRECT_VALUE", told + miscounted(name, len(tokens), self.seen.received))
        if reason is not None:
            self.seen.reasons[name] = reason
            del self.live[name]

    def _what_became_of(self, name: str) -> str:
        if name in self.seen.aborted:
            return f"which was aborted before, while it {'ran' if self.seen.tokens[name] else 'waited'}"
        if name in self.seen.reasons:
            return f'which had ended before ("{self.seen.reasons[name]}")'
        return "a request that was never added"

    def abort(self) -> None:
        for name, request in list(self.live.items()):
            if request.abort_after is not None and len(self.seen.tokens[name]) >= request.abort_after:
                self.worker.call(self.llm.method("abort"), name)
                self.seen.aborted.add(name)
                del self.live[name]

    def end(self) -> None:
        """The engine must agree that there is nothing left."""
        unfinished = self.worker.call(self.llm.method("has_unfinished_requests"))
        if unfinished is not False:
            told = f"All requests have ended, but has_unfinished_requests() is {unfinished!r:.60}; it must be False."
            raise Failure("INCORRECT_VALUE", told)
        outputs = read_step(self.worker.call(self.llm.method("step")), self.vocab_size)
        if outputs:
            told = f'All requests have ended, but a step still gave a token to "{outputs[0].request_id}".'
            raise Failure("INCORRECT_VALUE", told)


def _too_long(request: TraceRequest, count: int) -> Failure:
    """The failure of a request that got a token after its last one. Its answer ends before max_tokens: with an
    end-of-sequence token, then."""
    told = f'The answer to "{request.id}" has {count} tokens so far; it must end after {request.tokens} (stop).'
    return Failure("INCORRECT_VALUE", told, {"hint": f"Token {request.tokens - 1} of it is {SEVERAL_ENDS}"})


def _too_many_steps(run: _Run, limit: int) -> Failure:
    steps, left = run.seen.steps, list(run.live)
    quiet = next((number for number, outputs in enumerate(reversed(steps)) if outputs), limit)
    waiting = f'{len(left)} request{"s are" if len(left) != 1 else " is"} unfinished, "{left[0]}" first' if left else ""
    if quiet > IDLE_STEPS:
        told = f"The last {quiet} steps gave no token, though {waiting}: does the scheduler wait for what never comes?"
        return Failure("TIMEOUT", f"{told}{_stats(run)}")
    return _too_slow(
        f"After {limit} steps {waiting}. One request after the other would have ended by then: "
        "give every running request a token in each step.",
        limit,
        limit,
    )


def _stats(run: _Run) -> str:
    """What the engine says of itself, as a sentence after a space; "" when it says nothing."""
    try:
        stats = run.worker.call(run.llm.method("stats"))
    except Failure:
        return ""
    return f" Its stats() are {clean_line(repr(stats), 200)}." if isinstance(stats, dict) else ""


# Judging


def expect_lengths(seen: TraceRun, trace: Trace) -> None:
    """Every request that is not aborted got as many tokens as the trace says."""
    for request in trace:
        got = len(seen.tokens.get(request.id, ()))
        if request.abort_after is None and request.error is None and got != request.tokens:
            told = f'The answer to "{request.id}" has {got} tokens ("{seen.reasons.get(request.id)}")'
            raise Failure("INCORRECT_VALUE", f"{told}; it must have {request.tokens}: {request.params}.")


def expect_decode_steps(
    seen: TraceRun, trace: Trace, max_num_seqs: int, token_budget: int | None = None, *, allowed: int | None = None
) -> None:
    """At most `allowed` decode steps; when that is None, `allowed_decode_steps` of the trace."""
    if allowed is None:
        allowed = allowed_decode_steps(trace, max_num_seqs, token_budget)
    if seen.decode_steps > allowed:
        raise _too_slow(
            f"The trace took {seen.decode_steps} decode steps; with {max_num_seqs} slots {allowed} are enough "
            f"({seen.tokens_per_step:.2f} tokens came per step). Fill a slot in the step after its request ended.",
            seen.decode_steps,
            allowed,
        )


def expect_other_steps(seen: TraceRun) -> None:
    """Steps without a decode: one for each request, and one for each that was interrupted, at most."""
    requests, interruptions = len(seen.order), seen.interruptions
    if seen.other_steps > requests + interruptions:
        again = f" and {interruptions} interruptions of running ones" if interruptions else ""
        raise _too_slow(
            f"In {seen.other_steps} steps no running request got a token, for {requests} requests{again}; "
            f"at most {requests + interruptions} are allowed. A step should prefill as many waiting requests as fit.",
            seen.other_steps,
            requests + interruptions,
        )


def expect_running(seen: TraceRun, at_least: int, why: str) -> None:
    """Enough requests received tokens in one step; `why` says after "because" where the number comes from."""
    if seen.most_running < at_least:
        raise _too_slow(
            f"At most {seen.most_running} of the requests got a token in one step; {at_least} must, because {why}. "
            "Give each request only the memory that its tokens take, and admit requests while there is room.",
            seen.most_running,
            at_least,
        )


def expect_slots(seen: TraceRun, max_num_seqs: int) -> None:
    """At most `max_num_seqs` requests run at once: those that get a token in a step and in the next one."""
    for number, (outputs, following) in enumerate(pairwise(seen.steps)):
        going_on = outputs.keys() & following.keys()
        if len(going_on) > max_num_seqs:
            told = (
                f"In step {number} and in the next {len(going_on)} requests got tokens; max_num_seqs is {max_num_seqs}"
            )
            raise Failure("INCORRECT_VALUE", f"{told}: at most this many run at once.")


def expect_no_starvation(seen: TraceRun, longest: int = 4) -> None:
    """No running request waits more than `longest` steps for its next token."""
    steps, name = seen.longest_wait
    if steps > longest:
        raise _too_slow(
            f'Request "{name}" was running and got no token in {steps} steps in a row; at most {longest} are allowed. '
            "Decode the running requests even when new ones keep arriving.",
            steps,
            longest,
        )


def expect_fair(seen: TraceRun, max_num_seqs: int) -> None:
    """No request is overtaken by more than `max_num_seqs` later ones."""
    count, name = seen.most_overtaken
    if count > max_num_seqs:
        raise _too_slow(
            f'{count} requests that were added after "{name}" got their first token before it; '
            f"at most {max_num_seqs} may. Do not pass over a waiting request again and again.",
            count,
            max_num_seqs,
        )


def expect_at_most(what: str, figure: float, allowed: float, advice: str) -> None:
    """A count that must not exceed another: `what` and `advice` are a noun phrase in the plural and a sentence."""
    if not figure <= allowed:
        raise _too_slow(f"{what}: {figure:,.10g}; at most {allowed:,.10g} are allowed. {advice}", figure, allowed)


def _too_slow(message: str, figure: float, threshold: float) -> Failure:
    return Failure("TOO_SLOW", message, {"figure": figure, "threshold": threshold})
