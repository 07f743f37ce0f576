"""Reads what an engine answers, the outputs of a step and whole completions, and holds it against exact answers.

Everything here came from a submission's process: nothing is used before its form is known. Failures say which request.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from grader.compare import Failure
from grader.given.requests import Completion, StepOutput
from grader.report.text import clean_line

REASONS = ("stop", "length")

Answer = tuple[Sequence[int], str]
"""The new tokens of a request and its finish reason."""


def read_step(value: Any, vocab_size: int) -> list[StepOutput]:
    """What `step` returned, as StepOutputs; Failure unless it has their form and no request twice."""
    if not isinstance(value, list | tuple):
        raise _wrong(f"step must return a list of StepOutput, not {_shown(value)}.", "INCORRECT_DTYPE")
    outputs = [_read_output(entry, vocab_size) for entry in value]
    seen: set[str] = set()
    for output in outputs:
        if output.request_id in seen:
            raise _wrong(f"One step gave request {output.request_id} two tokens; each may get one.")
        seen.add(output.request_id)
    return outputs


def read_completions(value: Any, count: int, vocab_size: int) -> list[Completion]:
    """What `generate` returned for `count` prompts, as Completions; Failure unless it has their form."""
    if not isinstance(value, list | tuple):
        raise _wrong(f"generate must return a list of Completion, not {_shown(value)}.", "INCORRECT_DTYPE")
    if len(value) != count:
        raise _wrong(f"generate returned {len(value)} completions for {count} prompts.", "INCORRECT_SHAPE")
    return [_read_completion(entry, f"Completion {index}", vocab_size) for index, entry in enumerate(value)]


def expect_answers(got: Mapping[str, Answer], want: Mapping[str, Answer]) -> None:
    """Raise Failure unless every request of `want` got exactly its tokens and its finish reason."""
    for request, (tokens, reason) in want.items():
        if request not in got:
            raise _wrong(f"Request {request} got no answer.")
        got_tokens, got_reason = got[request]
        for index, (token, right) in enumerate(zip(got_tokens, tokens, strict=False)):
            if token != right:
                told = f"Token {index} of the answer to {request} is {token}; it must be {right}."
                raise Failure("INCORRECT_VALUE", told, {"hint": _hint(request, index, got_tokens, want)})
        if len(got_tokens) != len(tokens):
            raise _wrong(
                f"The answer to {request} has {_tokens(len(got_tokens))}; it must end after {len(tokens)} ({reason})."
            )
        if got_reason != reason:
            raise _wrong(f'The answer to {request} ended with the finish reason "{got_reason}"; it must be "{reason}".')


def _hint(request: str, index: int, tokens: Sequence[int], want: Mapping[str, Answer]) -> str | None:
    """What the wrong token and those after it are, when they are known from somewhere."""
    following = list(tokens[index : index + 4])
    right = list(want[request][0])
    if len(following) > 1 and following == right[index + 1 : index + 1 + len(following)]:
        return "The right token was left out; the tokens after it are right."
    if index and tokens[index] == tokens[index - 1]:
        return "The token before it came again: is each new token the input of the next step?"
    for other, (its_tokens, _) in want.items():
        if other != request and len(following) > 1 and _contains(its_tokens, following):
            return f"From there it is part of the answer to {other}: do rows of the batch and requests keep together?"
    return None


def _contains(tokens: Sequence[int], part: Sequence[int]) -> bool:
    return any(list(tokens[start : start + len(part)]) == part for start in range(len(tokens) - len(part) + 1))


def _read_output(entry: Any, vocab_size: int) -> StepOutput:
    match entry:
        case (str(request), token, None | str() as reason):
            request = clean_line(request, 80)
            _check_token(token, f"A step gave request {request}", vocab_size)
            if reason is not None and reason not in REASONS:
                raise _wrong(f'Request {request} ended with the finish reason {_shown(reason)}: "stop" or "length".')
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
        kind = type(token).__name__
        raise _wrong(f"{who} a token of type {kind}; tokens are Python integers: use int(…).", "INCORRECT_DTYPE")
    if not 0 <= token < vocab_size:
        raise _wrong(f"{who} the token {token}; the vocabulary is 0 … {vocab_size - 1}.")


def _shown(value: Any) -> str:
    return clean_line(repr(value), 80)


def _tokens(count: int) -> str:
    return f"{count} token{'' if count == 1 else 's'}"


def _wrong(message: str, verdict: str = "INCORRECT_VALUE") -> Failure:
    return Failure(verdict, message)
