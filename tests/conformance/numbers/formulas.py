"""Cases that apply one expression of CUDA C to every element of their inputs; the kernels are written from a table."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.table import WRITTEN, Case, Launch, Table, blank

Inputs = Callable[[np.random.Generator], list[np.ndarray]]
"""Draws the inputs: arrays of one type and size."""

WIDTHS = {"float2": 2, "__nv_bfloat162": 2, "__half2": 2}
KERNEL = """extern "C" __global__ void {name}({result}* out, {parameters}, int n) {{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {{
        const {element} {elements};
        out[i] = {code};
    }}
}}
"""


class Formulas(Table):
    """A table whose module consists of `head` and a kernel for each case."""

    def __init__(self, module: str, head: str = "") -> None:
        super().__init__(module)
        self.kernels: dict[str, str] = {}
        self.head = head
        WRITTEN[module] = self.source

    def source(self) -> str:
        return self.head + "".join(self.kernels.values())

    def formula(
        self, code: str, result: str, element: str, inputs: Inputs, expected: Callable[..., Any], ulps: float = 0
    ) -> None:
        """A kernel that computes `code` of inputs a, b, c: C types of result and elements; what NumPy says of inputs.

        Results are compared number by number, see `distance`. Pairs are elements of two numbers.
        """
        names = [name for name in "abc" if re.search(rf"\b{name}\b", code)]
        words = re.findall(r"\w+", code)[:3]
        name = f"{'_'.join(words).strip('_')}_{len(self.kernels)}"
        parameters = ", ".join(f"const {element}* in_{name}" for name in names)
        elements = ", ".join(f"{name} = in_{name}[i]" for name in names)
        self.kernels[name] = KERNEL.format(
            name=name, result=result, parameters=parameters, element=element, elements=elements, code=code
        )

        def launch(rng: np.random.Generator) -> Launch:
            with np.errstate(all="ignore"):
                drawn = inputs(rng)
                order = rng.permutation(drawn[0].size)  # so that the first thousands are a sample of them all
                given = [values[order] for values in drawn]
                wanted = expected(*given)
            count = np.int32(given[0].size // WIDTHS.get(element, 1))
            return Launch([blank(wanted.shape, wanted.dtype), *given, count], [wanted], by_number=True)

        self.cases.append(Case(self.module, name, (8,), (256, 1, 1), 0, ulps, launch))
