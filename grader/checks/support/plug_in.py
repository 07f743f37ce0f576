"""Runs a submission's kernel inside the forward pass of the stored model."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from grader import oracle
from grader.checking.api import Failure, expect, expect_rows
from grader.oracle.llama import Reference, Replaced
from grader.oracle.references import ReferenceModel

CALLS = {"rmsnorm": 2, "residual_add": 2, "linear": 7}
"""Calls of an operation in a layer, where there are several; after the last layer comes one more norm."""

SMALL_ERRORS = (
    "Each call alone is within its allowed error, but together they are too far off: round to the nearest (not down), "
    "and once, at the end of a kernel."
)


def expect_in_model(tiny: ReferenceModel, longest: int = 400, **operations: Callable[..., Any]) -> None:
    """Raise Failure unless the logits are right when these operations of every layer run as given, others in NumPy.

    Prompts of at most `longest` tokens are run. The failure names the first call whose output went wrong.
    """
    for reference in tiny.references:
        if len(reference.ids) <= longest:
            logits = tiny.oracle.forward(reference.ids, Replaced(**operations)).logits
            try:
                expect_rows(logits, reference.float32.logits, reference.bf16.logits)
            except Failure as failure:
                _expect_each_call(tiny, reference, failure, operations)
                raise


def _expect_each_call(
    tiny: ReferenceModel, reference: Reference, failure: Failure, operations: dict[str, Callable[..., Any]]
) -> None:
    """Raise Failure for the first call of the forward pass whose own output is wrong; else say so in `failure`."""
    calls: Counter[str] = Counter()

    def judged(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            number, result = calls[name], operation(*arguments)
            calls[name] += 1
            try:
                _expect_output(name, arguments, result)
            except Failure as wrong:
                place = _place(name, number, tiny.config.num_layers)
                message = (
                    f"The logits are wrong. The first call whose output is wrong is {name} {place}: {wrong.message}"
                )
                raise Failure(failure.verdict, message, wrong.evidence) from None
            return result

        return call

    tiny.oracle.forward(reference.ids, Replaced(**{name: judged(name, call) for name, call in operations.items()}))
    failure.evidence["hint"] = SMALL_ERRORS


def _expect_output(name: str, arguments: Sequence[Any], result: Any) -> None:
    right = oracle.matmul(*arguments) if name == "linear" else getattr(oracle, name)(*arguments)
    if not isinstance(right, tuple):
        return expect(result, right, "x" if name == "residual_add" else "out")
    for array, got, expected in zip(("q", "k"), result, right, strict=True):
        expect(got, expected, array)


def _place(name: str, number: int, layers: int) -> str:
    """Where in the model a call is, by its number among those of its operation."""
    layer, call = divmod(number, CALLS.get(name, 1))
    if name == "embedding" or layer == layers:
        return "at the start" if name == "embedding" else "after the last layer"
    return f"in layer {layer}" + (f" (call {call + 1} of {CALLS[name]})" if name in CALLS else "")
