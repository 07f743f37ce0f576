"""Changes one row of what one launch or product wrote, so that the owner of the device sees whether an answer follows.

Which arrays a kernel writes is known for those of the course. A changed row has the same numbers, each a third of its
length farther to the left: as large as it was, and nothing that any input would give.
"""

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from grader.emulator.arena import Arena
from grader.emulator.native import Argument, Gemm

BF16_BYTES, FLOAT_BYTES = 2, 4


class Output(NamedTuple):
    """A kernel whose first argument is its output [rows, width] of bf16: where its sizes stand among its ints."""

    pointers: int
    """Arguments before the ints."""
    rows: int
    width: tuple[int, ...]
    """Of which the width is the product."""


OUTPUTS: Mapping[str, Output] = {
    "embedding": Output(3, 0, (1,)),
    "residual_add": Output(2, 0, (1,)),
    "silu_mul": Output(3, 0, (1,)),
    "rmsnorm_tree": Output(3, 0, (1,)),
    "rmsnorm": Output(3, 0, (1,)),
    "rope": Output(5, 0, (1, 3)),
    "attention": Output(4, 0, (2, 4)),
    "decode_attention": Output(6, 0, (2, 4)),
    "flash_attention": Output(4, 0, (2, 4)),
    "flash_decode_attention": Output(6, 0, (2, 4)),
    "attention_varlen": Output(6, 1, (2, 4)),
    "paged_attention": Output(6, 0, (3, 5)),
}
"""By the kernel's name, as grader/submission_path/given/contracts.py has its arguments."""


class Intervention:
    """Counts outputs and changes a row of number `at`, if that is not negative; `place` from 0 to 1 says which row."""

    def __init__(self, arena: Arena, at: int, place: float) -> None:
        self.outputs = 0
        """Known outputs that were written so far."""
        self.changed: dict[str, Any] | None = None
        """The change: what wrote the rows, how many and how wide they are, bytes of an element, number and bytes (as
        hexadecimal digits) of the row before and after."""
        self._arena = arena
        self._at = at
        self._place = place

    def launched(self, kernel: str, declared: Sequence[Argument], packed: bytes) -> None:
        """A kernel ran with these arguments."""
        output = OUTPUTS.get(kernel)
        if (
            output is None
            or len(declared) <= output.pointers
            or any(
                argument.kind != (b"p" if number < output.pointers else b"i")
                for number, argument in enumerate(declared)
                if argument.kind != b"f"
            )
        ):
            return
        sizes = [struct.unpack_from("<i", packed, each.offset)[0] for each in declared if each.kind == b"i"]
        if len(sizes) <= max(output.rows, *output.width):
            return
        width = 1
        for index in output.width:
            width *= sizes[index]
        (address,) = struct.unpack_from("<Q", packed, declared[0].offset)
        self._written(kernel, address, sizes[output.rows], width, width * BF16_BYTES, BF16_BYTES)

    def multiplied(self, call: Gemm) -> None:
        """A matrix product was made, whose columns are the rows of a row-major array."""
        element = FLOAT_BYTES if call.c_is_float else BF16_BYTES
        self._written("product", call.c, call.n, call.m, call.ldc * element, element)

    def _written(self, name: str, address: int, rows: int, width: int, stride: int, element: int) -> None:
        if rows <= 0 or width <= 0:
            return
        number, self.outputs = self.outputs, self.outputs + 1
        if number != self._at:
            return
        row = int(self._place * rows)
        address, size = address + row * stride, width * element
        if not self._arena.holds(address, size):
            return
        before = ctypes.string_at(address, size)
        turn = (width // 3 + 1) * element
        after = before[turn:] + before[:turn]
        ctypes.memmove(address, after, size)
        self.changed = {"name": name, "rows": rows, "width": width, "element": element, "row": row}
        self.changed |= {"before": before.hex(), "after": after.hex()}
