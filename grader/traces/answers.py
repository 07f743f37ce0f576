"""Reads what an engine answers, the outputs of a step and whole completions, and holds it against exact answers.

Everything here came from a submission's process: nothing is used before its form is known. Failures say which request,
and what a wrong token is, when it is known from somewhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from given.requests import Completion, StepOutput

from grader.failure import Failure
from grader.text import clean_line
from grader.worker.arguments import Handle

REASONS = ("stop", "length")
SEVERAL_ENDS = "an end-of-sequence token: a model may have several, and each of them ends an answer."

Answer = tuple[Sequence[int], str]
"""The new tokens of a request and its finish reason."""

Steps = Mapping[str, Sequence[int]]
"""The numbers of the steps in which each request received its tokens."""


def read_step(value: Any, vocab_size: int) -> list[StepOutput]:
    """What `step` returned, as StepOutputs; Failure unless it has their form and no request twice."""
    if not isinstance(value, list | tuple):
        raise _wrong(f"step must return a list of StepOutput, not {_shown(value)}.", "INCORRECT_DTYPE")
    outputs = [_read_output(entry, vocab_size) for entry in value]
    seen: set[str] = set()
    for output in outputs:
        if output.request_id in seen:
            raise _wrong(f'One step gave request "{output.request_id}" two tokens; each may get one.')
        seen.add(output.request_id)
    return outputs


def read_completions(value: Any, count: int, vocab_size: int) -> list[Completion]:
    """What `generate` returned for `count` prompts, as Completions; Failure unless it has their form."""
    if not isinstance(value, list | tuple):
        raise _wrong(f"generate must return a list of Completion, not {_shown(value)}.", "INCORRECT_DTYPE")
    if len(value) != count:
        raise _wrong(f"generate returned {len(value)} completions for {count} prompts.", "INCORRECT_SHAPE")
    return [_read_completion(entry, f"Completion {index}", vocab_size) for index, entry in enumerate(value)]


def expect_counts(completions: Sequence[Completion], counts: Sequence[int]) -> None:
    """Raise Failure, which says whose count a wrong one is, unless each completion has its count of tokens."""
    for index, (completion, count) in enumerate(zip(completions, counts, strict=True)):
        got = len(completion.token_ids)
        if got != count:
            others = [str(other) for other, its_count in enumerate(counts) if its_count == got]
            told = f"The answer to prompt {index} has {_tokens(got)}; it must have {count}."
            order = "return the completions in the order of the prompts, not in that of their ends."
            hint = f"The answer to prompt {' or '.join(others)} has this many: {order}" if others else None
            raise Failure("INCORRECT_VALUE", told, {"hint": hint})


def expect_answers(got: Mapping[str, Answer], want: Mapping[str, Answer], received: Steps | None = None) -> None:
    """Raise Failure unless every request of `want` got exactly its tokens and its finish reason.

    Tokens come before all else: a wrong one says more than the length to which it led.
    """
    expect_tokens({request: tokens for request, (tokens, _) in got.items()}, want, received)
    for request, (tokens, reason) in want.items():
        if request not in got:
            raise _wrong(f'Request "{request}" got no answer.')
        got_tokens, got_reason = got[request]
        if len(got_tokens) != len(tokens):
            told = (
                f'The answer to "{request}" has {_tokens(len(got_tokens))}; it must end after {len(tokens)} ({reason}).'
            )
            told += miscounted(request, len(got_tokens), received or {})
            is_longer = len(got_tokens) > len(tokens) and reason == "stop"
            hint = f"Token {len(tokens) - 1} of it is {SEVERAL_ENDS}" if is_longer else None
            raise Failure("INCORRECT_VALUE", told, {"hint": hint})
        if got_reason != reason:
            told = f'The answer to "{request}" ended with the finish reason "{got_reason}"; it must be "{reason}".'
            raise _wrong(told)


def expect_tokens(got: Mapping[str, Sequence[int]], want: Mapping[str, Answer], received: Steps | None = None) -> None:
    """Raise Failure when a token so far is wrong: the first one in time, if `received` tells when they came."""
    received = received or {}
    wrong = []
    for request in want.keys() & got.keys():
        pairs = zip(got[request], want[request][0], strict=False)
        index = next((index for index, (token, right) in enumerate(pairs) if token != right), None)
        if index is not None:
            wrong.append((_step(request, index, received), list(want).index(request), request, index))
    if wrong:
        _, _, request, index = min(wrong)
        token, right = got[request][index], want[request][0][index]
        told = f'Token {index} of the answer to "{request}" is {token}; it must be {right}.'
        told += after_pause(request, index, received)
        raise Failure("INCORRECT_VALUE", told, {"hint": _hint(request, index, got[request], want, received)})


def after_pause(request: str, index: int, received: Steps) -> str:
    """A sentence, after a space, on the last steps before a token in which its request, which had begun, got nothing
    while others decoded, as when it is preempted; "" when there are none."""
    place, told = _last_pause(request, index, received)
    which = "its first token" if place == index else f"token {index - place + 1}"
    return f"{told}; this is {which} after that." if told else ""


def miscounted(request: str, count: int, received: Steps) -> str:
    """The like for a request of which the first `count` tokens are right, but too few or too many."""
    _, told = _last_pause(request, count - 1, received)
    return f"{told}: was a token lost there, or counted twice?" if told else ""


def _last_pause(request: str, index: int, received: Steps) -> tuple[int, str]:
    """The index of the first token after it, and what to say of it; (0, "") when there is none."""
    steps = received.get(request, ())[: index + 1]
    for place in range(len(steps) - 1, 0, -1):
        before, after = steps[place - 1], steps[place]
        if any(_decoded(its_steps, before, after) for its_steps in received.values()):
            when = f"steps {before + 1} to {after - 1}" if after - before > 2 else f"step {before + 1}"
            return place, f' "{request}" got no token in {when}, as if it had been preempted'
    return 0, ""


def _decoded(steps: Sequence[int], before: int, after: int) -> bool:
    """Whether one of these steps lies between the two and is not the first of all."""
    return any(before < step < after for step in steps[1:])


def _step(request: str, index: int, received: Steps) -> int:
    """The step of a token; 0 when it is not known."""
    steps = received.get(request, ())
    return steps[index] if index < len(steps) else 0


def _hint(request: str, index: int, tokens: Sequence[int], want: Mapping[str, Answer], received: Steps) -> str | None:
    """What the wrong token and those after it are, when they are known from somewhere."""
    following = list(tokens[index : index + 4])
    right = list(want[request][0])
    if len(following) > 1 and following == right[index + 1 : index + 1 + len(following)]:
        return "The right token was left out; the tokens after it are right."
    if index and tokens[index] == tokens[index - 1]:
        if len(following) > 1 and following[1:] == right[index : index + len(following) - 1]:
            return "The token before it came again, once; the tokens after it are right."
        return "The token before it came again: is each new token the input of the next step?"
    step = _step(request, index, received)
    together = "do rows of the batch and requests keep together?"
    for other, (its_tokens, _) in want.items():
        if other != request and tokens[index] == _due(its_tokens, received.get(other, ()), step):
            return f'That is the token that "{other}" should have got in this step: {together}'
    for other, (its_tokens, _) in want.items():
        if other != request and len(following) > 1 and _contains(its_tokens, following):
            return f'From there it is part of the answer to "{other}": {together}'
    return None


def _due(tokens: Sequence[int], steps: Sequence[int], step: int) -> int | None:
    """The one of these tokens that belongs to a step; None when no token came in it."""
    place = steps.index(step) if step in steps else len(tokens)
    return tokens[place] if place < len(tokens) else None


def _contains(tokens: Sequence[int], part: Sequence[int]) -> bool:
    return any(list(tokens[start : start + len(part)]) == part for start in range(len(tokens) - len(part) + 1))


def _read_output(entry: Any, vocab_size: int) -> StepOutput:
    match entry:
        case (str(request), token, None | str() as reason):
            request = clean_line(request, 80)
            _check_token(token, f'A step gave request "{request}"', vocab_size)
            if reason is not None and reason not in REASONS:
                raise _wrong(f'Request "{request}" ended with the finish reason {_shown(reason)}: "stop" or "length".')
            return StepOutput(request, token, reason)
    told = f"step returned {_shown(entry)}; each entry must be a StepOutput (request_id, token, finish_reason)."
    raise _wrong(told, "INCORRECT_DTYPE")


def _read_completion(entry: Any, name: str, vocab_size: int) -> Completion:
    match entry:
        case (list(tokens), None | str() as text, str(reason)) if reason in REASONS:
            for token in tokens:
                _check_token(token, f"{name} has", vocab_size)
            return Completion(tokens, text, reason)
    told = f"{name} is {_shown(entry)}; it must be a Completion (token_ids, text, finish_reason)."
    raise _wrong(told, "INCORRECT_DTYPE")


def _check_token(token: Any, who: str, vocab_size: int) -> None:
    if type(token) is not int:
        kind = token.type_name if isinstance(token, Handle) else type(token).__name__
        raise _wrong(f"{who} a token of type {kind}; tokens are Python integers: use int(…).", "INCORRECT_DTYPE")
    if not 0 <= token < vocab_size:
        raise _wrong(f"{who} the token {_shown(token)}; the vocabulary is 0 … {vocab_size - 1}.")


def _shown(value: Any) -> str:
    return clean_line(repr(value), 80)


def _tokens(count: int) -> str:
    return f"{count} token{'' if count == 1 else 's'}"


def _wrong(message: str, verdict: str = "INCORRECT_VALUE") -> Failure:
    return Failure(verdict, message)
