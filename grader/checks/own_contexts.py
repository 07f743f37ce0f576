"""Short answers of the stored model, whose next token depends on all that its request has read."""

from numpy.random import Generator

from grader.checking.api import Worker
from grader.checks.serving import excerpt, greedy, new_llm
from grader.oracle.references import ReferenceModel
from grader.oracle.streams import expect_stream
from grader.throughput import drive, expect_lengths


def expect_own_contexts(worker: Worker, rng: Generator, tiny: ReferenceModel) -> None:
    """Each request reads its own keys and values also where rows and slots have different orders.

    The second of three ends first, and the fourth takes its place in the cache, but not in the batch.
    """
    llm = new_llm(worker, tiny.folder, max_num_seqs=3, max_model_len=64)
    lengths = ((9, 10), (4, 2), (15, 9), (6, 8))
    trace = [greedy(f"t{i}", excerpt(rng, tiny, prompt), tokens) for i, (prompt, tokens) in enumerate(lengths)]
    seen = drive(worker, llm, trace, tiny.config.vocab_size)
    expect_lengths(seen, trace)
    for request in trace:
        expect_stream(tiny.oracle, request.prompt, seen.tokens[request.id], f'the answer to "{request.id}"')
