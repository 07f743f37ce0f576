"""The numbers of 13-continuous-batching.md."""

import math
from collections.abc import Iterator

from given.requests import SamplingParams

from grader.traces.trace import (
    Trace,
    TraceRequest,
    allowed_decode_steps,
    decode_steps,
    first_come,
    longest_first,
    shortest_first,
    static_decode_steps,
)
from tests.handouts.formats import many, num

ANSWERS = [2, 9, 1, 3, 2, 8, 2, 7, 2]
SLOTS = 3


def trace() -> Trace:
    return [
        TraceRequest(name, (1,), SamplingParams(), tokens) for name, tokens in zip("ABCDEFGHI", ANSWERS, strict=True)
    ]


def continuous() -> list[list[str]]:
    """Who gets a token in each step when requests are admitted as they came."""
    left = dict(zip("ABCDEFGHI", ANSWERS, strict=True))
    waiting, running, steps = list(left), list[str](), list[list[str]]()
    while waiting or running:
        while waiting and len(running) < SLOTS:
            running.append(waiting.pop(0))
        steps.append(list(running))
        for name in running:
            left[name] -= 1
        running = [name for name in running if left[name]]
    return steps


def longest_last(request: TraceRequest) -> float:
    return math.inf if request.tokens == max(ANSWERS) else -request.tokens


def timeline() -> Iterator[str]:
    total = sum(ANSWERS)
    batches = [max(ANSWERS[first : first + SLOTS]) for first in range(0, len(ANSWERS), SLOTS)]
    static, steps = sum(batches), continuous()
    joined = {name: next(n for n, step in enumerate(steps, 1) if name in step) for name in "DE"}
    cells = SLOTS * len(steps)
    yield f"""
        The figure in words: nine requests, A to I, get {many(ANSWERS[:-1])} and {ANSWERS[-1]} tokens, {total} together.
        Three *slots* are there: three requests may run at once. With static batches, A, B and C run until B has ended,
        then D, E, F, then G, H, I: {many(batches, between=" + ")} = {static} steps, and {SLOTS * static - total} of
        {SLOTS * static} cells are idle. With continuous batching D takes C's slot in step {joined["D"]}, E takes A's in
        step {joined["E"]}, and so on. It is over after {len(steps)} steps, and {cells - total} of {cells} cells are
        idle. A step costs nearly the same whether its cells are full or empty, since most of its time goes into reading
        the weights: {total / static:.2f} tokens for that price, or {total / len(steps):.2f}.
    """
    yield f"""![Nine requests in three slots: {static} steps with static batches, {len(steps)} with continuous ones]"""
    yield f"the figure: D gets its token in step {joined['D']}"


def orders() -> Iterator[str]:
    counted = [decode_steps(trace(), order, SLOTS) for order in (first_come, shortest_first, longest_first)]
    last = decode_steps(trace(), longest_last, SLOTS)
    worst = max(*counted, last)
    allowed = allowed_decode_steps(trace(), SLOTS)
    rest = sorted(ANSWERS, reverse=True)
    assert allowed == math.floor(1.05 * worst)
    yield f"""| first come first | {counted[0]} | the figure: {len(continuous())} steps, of which the first has no
        decode |"""
    yield f"| shortest first | {counted[1]} | |"
    yield f"| longest first | {counted[2]} | |"
    yield f"| longest last | {last} | {many(rest[1:])} in three slots, then {rest[0]} nearly alone |"
    yield f"| allowed | {allowed} | 1.05 · {worst} = {1.05 * worst:.1f}, rounded down |"
    batches = [max(ANSWERS[first : first + SLOTS]) - 1 for first in range(0, len(ANSWERS), SLOTS)]
    assert static_decode_steps(trace(), SLOTS) == sum(batches)
    yield f"| static batching | {sum(batches)} | {many(batches, between=' + ')}: `TOO_SLOW` |"


def stored() -> Iterator[str]:
    prompt, new = 3, 4
    yield f"for a prompt of {prompt} tokens and {new} new ones:"
    yield f"| 1 | prefill | {' '.join(f'p{i}' for i in range(prompt))} | {prompt} | t0 | {prompt + 1} |"
    for step in range(2, new + 1):
        ends = ', "length"' if step == new else ""
        yield f"""| {step} | decode | t{step - 2} | {prompt + step - 1} | t{step - 1}{ends} | {prompt + step} |"""
    longest = prompt + new
    yield f"""
        With `max_model_len` = {longest} this request just fits. A prompt of {longest - 1} tokens gets one token there,
        and one of {longest} tokens none: it must be refused.
    """
    yield "prompt 39, `max_model_len` 40: exactly one token"


def budget() -> Iterator[str]:
    limit, running, prompts = 32, 3, [12, 15, 60, 5]
    first = running + prompts[0] + prompts[1]
    second = (running + 2) + prompts[2]
    third = (running + 3) + prompts[3]
    assert first <= limit < first + prompts[3]
    assert second > limit
    yield f"""
        The figure in words: the budget is {limit}. Three requests run, and prompts of {many(prompts[:3])} and
        {prompts[3]} tokens wait; slots are free. Step 1: {running} + {prompts[0]} + {prompts[1]} = {first}; the prompt
        of {prompts[2]} does not fit any more. Step 2: {running + 2} decodes and the prompt of {prompts[2]}, as the only
        one: {second}. Step 3: {running + 3} + {prompts[3]} = {third}. Why is the {prompts[3]} not taken in step 1 or 2,
        before the {prompts[2]}? In step 1 it would not fit either, {first + prompts[3]} tokens. In step 2 it would be a
        second prompt beyond the budget. An engine that admitted it in step 1 in place of the {prompts[1]}, say, would
        be allowed to
    """
    yield f"""![Four steps under a budget of {limit}: {running} decodes and prompts of {prompts[0]} and
        {prompts[1]}; then the prompt of {prompts[2]} alone]"""
    yield f"{running} + {prompts[0]} + {prompts[1]} + {prompts[3]} = {first + prompts[3]}"
    yield f"A prompt of {num(4000)} tokens in a step makes all running requests wait for it."


EXAMPLES = (timeline, orders, stored, budget)
