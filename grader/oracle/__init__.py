"""What the right answers are: one reference per operation here, the whole model in `grader.oracle.llama`.

Each function takes an operation's inputs (bf16 where the contract says so) and returns `Expected`: float64 results with
the error that the contract allows each of them, and the suspects against which a wrong result is held.
"""

from grader.oracle.operations import argmax, attention_varlen, rope_tables, vector_add
from grader.oracle.sampling import probabilities
from grader.oracle.suspects import (
    attention,
    decode_attention,
    embedding,
    matmul,
    paged_attention,
    residual_add,
    rmsnorm,
    rope,
    silu_mul,
    softmax,
    write_kv,
)

__all__ = [
    "argmax",
    "attention",
    "attention_varlen",
    "decode_attention",
    "embedding",
    "matmul",
    "paged_attention",
    "probabilities",
    "residual_add",
    "rmsnorm",
    "rope",
    "rope_tables",
    "silu_mul",
    "softmax",
    "vector_add",
    "write_kv",
]
