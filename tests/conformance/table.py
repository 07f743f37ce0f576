"""What a case of the conformance suite is: one launch of one kernel, its arguments, and what NumPy expects of it.

A module with cases makes a Table for its kernels (`module` is the .cu file beside it) and adds functions to it, each
named after its kernel. A function draws arguments from a generator and returns a Launch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.conformance.distance import distance

FOLDER = Path(__file__).parent / "kernels"
OPTIONS = ("-std=c++17",)
WRITTEN: dict[str, Callable[[], str]] = {}
"""By module, what writes its text, where that is no file."""


@dataclass(frozen=True)
class Launch:
    """Arguments as PyCUDA takes them, arrays as host arrays: all are copied to the device and back."""

    arguments: Sequence[Any]
    expected: Sequence[np.ndarray]
    """Of the first arrays among the arguments, in their order: values after the launch."""
    written: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By name, what the host writes into variables of the module before the launch …"""
    read: Mapping[str, np.ndarray] = field(default_factory=dict)
    """… and what it reads from such variables afterwards."""
    by_number: bool = False
    """Whether results are compared by `distance`, each number by itself, not by `error`."""

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arrays among the arguments, as they are before the launch."""
        return [argument for argument in self.arguments if isinstance(argument, np.ndarray)]

    @property
    def results(self) -> list[np.ndarray]:
        """What a program returns of this launch, in its order, as far as shape and type: arrays, then variables."""
        return [*self.arrays, *self.read.values()]


@dataclass(frozen=True)
class Case:
    module: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, int, int]
    shared: int
    """Bytes of dynamic shared memory; above 48 KB they are asked for by set_attribute."""
    ulps: float
    """How far a floating point result may be off, see `error`; integers are always equal."""
    draw: Callable[[np.random.Generator], Launch]
    says: str = ""
    """What the kernel prints, or CUDA's text for how it fails; such cases run in programs of their own."""

    @property
    def name(self) -> str:
        return f"{self.module}:{self.kernel}"

    def launch(self) -> Launch:
        """The same arguments in every process."""
        return self.draw(np.random.default_rng(list(self.name.encode())))


class Table:
    """The cases of one module, by kernel."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.cases: list[Case] = []

    def case(
        self,
        *,
        grid: int | tuple[int, ...] = 1,
        block: int | tuple[int, ...] = 32,
        shared: int = 0,
        ulps: float = 0,
        says: str = "",
    ) -> Callable[[Callable[[np.random.Generator], Launch]], Callable[[np.random.Generator], Launch]]:
        """Adds a function as the case of the kernel of its name."""
        grid = (grid,) if isinstance(grid, int) else grid
        extents = (block,) if isinstance(block, int) else block
        x, y, z = (*extents, 1, 1)[:3]

        def add(draw: Callable[[np.random.Generator], Launch]) -> Callable[[np.random.Generator], Launch]:
            self.cases.append(Case(self.module, draw.__name__, grid, (x, y, z), shared, ulps, draw, says))
            return draw

        return add


def blank(shape: int | tuple[int, ...], dtype: Any = np.int32) -> np.ndarray:
    """An output that no kernel has written: every byte is 0xa5."""
    array = np.empty(shape, dtype)
    array.view(np.uint8).fill(0xA5)
    return array


def error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of two arrays, in units in the last place of `expected`; infinite for unequal integers.

    The unit is that of the larger of the value and the mean magnitude of its array: what cancels in a sum is as exact
    as its terms are.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if found.dtype.kind in "iub" or found.dtype.names:
        return 0.0 if np.array_equal(found, expected) else float("inf")
    got, wanted = found.astype(np.float64), expected.astype(np.float64)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    if same.all():
        return 0.0
    if not np.isfinite(got[~same]).all() or not np.isfinite(wanted[~same]).all():
        return float("inf")
    scale = np.maximum(np.abs(wanted), np.abs(wanted[np.isfinite(wanted)]).mean()).astype(found.dtype)
    unit = np.spacing(scale).astype(np.float64)
    return float((np.abs(got - wanted)[~same] / unit[~same]).max())


def errors(launch: Launch, results: Sequence[np.ndarray]) -> float:
    """The largest error of a launch's results."""
    wanted = [*launch.expected, *launch.arrays[len(launch.expected) :], *launch.read.values()]
    measure = distance if launch.by_number else error
    return max(measure(found, right) for found, right in zip(results, wanted, strict=True))


def source(module: str) -> str:
    """CUDA C of a module; messages name its own lines."""
    text = WRITTEN[module]() if module in WRITTEN else (FOLDER / module).read_text()
    return f'#line 1 "{module}"\n{text}'
