"""What the right answers are: one reference per operation here, the whole model in `grader.oracle.llama`.

Each function takes an operation's inputs (bf16 where the contract says so) and returns `Expected`: float64 results with
the error that the contract allows each of them.
"""

from grader.oracle.cache_operations import decode_attention, paged_attention, write_kv
from grader.oracle.operations import (
    argmax,
    attention,
    attention_varlen,
    embedding,
    matmul,
    residual_add,
    rmsnorm,
    rope,
    rope_tables,
    silu_mul,
    softmax,
    vector_add,
)
from grader.oracle.sampling import probabilities

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
