"""Launches whose outputs are judged by the kernel's reference, whatever else they are launched for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from given.contracts import CONTRACTS

from grader import oracle
from grader.checking.api import Counters, InOut, Out, Worker, expect
from grader.judge.compare import Expected
from grader.judge.rounding import expect_unbiased

REFERENCES: Mapping[str, Callable[..., Expected | tuple[Expected, ...]]] = {
    "embedding": oracle.embedding,
    "residual_add": oracle.residual_add,
    "silu_mul": oracle.silu_mul,
    "rmsnorm_tree": oracle.rmsnorm,
    "rmsnorm": oracle.rmsnorm,
    "rope": oracle.rope,
    "softmax": oracle.softmax,
    "matmul_naive": oracle.matmul,
    "matmul_tiled": oracle.matmul,
    "attention": oracle.attention,
    "write_kv": oracle.write_kv,
    "decode_attention": oracle.decode_attention,
    "flash_attention": oracle.attention,
    "flash_decode_attention": oracle.decode_attention,
    "attention_varlen": oracle.attention_varlen,
    "paged_attention": oracle.paged_attention,
}


def expect_launch(worker: Worker, op: str, *arguments: Any) -> None:
    """Raise Failure unless a launch with these arguments, as of Worker.launch, writes what it must."""
    expect_outputs(op, worker.launch(op, *arguments), arguments)


def expect_rounded(worker: Worker, op: str, *arguments: Any) -> None:
    """As expect_launch; also Failure unless the outputs, 1,000 values or more, were rounded to the nearest."""
    outputs = worker.launch(op, *arguments)
    expect_outputs(op, outputs, arguments)
    for name, array, expected in _judged(op, outputs, arguments):
        expect_unbiased(array, expected, name)


def expect_counted(emulator: Worker, op: str, *arguments: Any) -> Counters:
    """What a launch with these arguments does; raises Failure unless it writes what it must."""
    outputs, counted = emulator.count(op, *arguments)
    expect_outputs(op, outputs, arguments)
    return counted


def expect_timed(worker: Worker, op: str, *arguments: Any) -> float:
    """Mean seconds of a launch with these arguments; raises Failure unless each writes what it must."""
    outputs, seconds = worker.timed(op, *arguments)
    expect_outputs(op, outputs, arguments)
    return seconds


def expect_outputs(op: str, outputs: Any, arguments: tuple[Any, ...]) -> None:
    """Judge what a launch of `op` with these arguments returned."""
    for name, array, expected in _judged(op, outputs, arguments):
        expect(array, expected, name)


def _judged(op: str, outputs: Any, arguments: tuple[Any, ...]) -> Iterator[tuple[str, Any, Expected]]:
    """Name, content and what is wanted of each output."""
    inputs = [argument.array if isinstance(argument, InOut) else argument for argument in arguments]
    wanted = REFERENCES[op](*(array for array in inputs if not isinstance(array, Out)))
    if isinstance(wanted, Expected):
        wanted, outputs = (wanted,), (outputs,)
    yield from zip([array.name for array in CONTRACTS[op].outputs], outputs, wanted, strict=True)
