"""Small submissions for tests of the grader. Their kernel copies x, so that no test holds a task's solution."""

from pathlib import Path

KERNEL = """
extern "C" __global__ void vector_add(float *out, const float *x, const float *y, int n)
{{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
"""
COPY = "if (i < n) out[i] = x[i];"


def write_engine(folder: Path, body: str = COPY, **modules: str) -> Path:
    """`folder`/engine with vector_add.cu, whose kernel has this body, and one Python file per module."""
    engine = folder / "engine"
    (engine / "kernels").mkdir(parents=True)
    (engine / "kernels/vector_add.cu").write_text(KERNEL.format(body=body))
    for name, source in modules.items():
        (engine / f"{name}.py").write_text(source)
    return engine
