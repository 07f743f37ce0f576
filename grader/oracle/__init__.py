"""What every operation and the whole model must compute: NumPy references, independent of the engine under test."""

from grader.oracle.operations import (
    argmax,
    attention,
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

__all__ = [
    "argmax",
    "attention",
    "embedding",
    "matmul",
    "residual_add",
    "rmsnorm",
    "rope",
    "rope_tables",
    "silu_mul",
    "softmax",
    "vector_add",
]
