"""CUDA graphs: many launches, recorded once and then launched as one, which costs the host a hundredth.

A recorded launch keeps its addresses and scalars: only what lies at these addresses may differ from one replay to the
next. See "CUDA Graphs" in NVIDIA's CUDA C++ Programming Guide.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pycuda.driver import Stream


def is_supported() -> bool:
    """Whether graphs can be recorded here: not on the emulated GPU, nor without the package cuda-bindings."""
    if find_spec("emulated_cublas") is not None or find_spec("cuda") is None:
        return False
    return find_spec("cuda.bindings") is not None


class Graphs:
    """Recorded sequences of launches, by key, all on one stream (not the default one, which cannot be recorded)."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._recorded: dict[Hashable, Any] = {}
        """None after the first run of a key."""

    def run(self, key: Hashable, launch: Callable[[], None]) -> None:
        """Do what `launch` does, which must be the same launches for the same key.

        The first time it is called, so that kernels are compiled; the second time recorded; then replayed.
        """
        if key not in self._recorded:
            self._recorded[key] = None
            launch()
            return
        from cuda.bindings import driver  # noqa: PLC0415  (extra gpu)

        if self._recorded[key] is None:
            self._recorded[key] = self._record(launch)
        _check(driver.cuGraphLaunch(self._recorded[key], self._stream.handle))

    def clear(self) -> None:
        """Forget all: the memory that the launches were recorded with has moved."""
        from cuda.bindings import driver  # noqa: PLC0415  (extra gpu)

        for graph in filter(None, self._recorded.values()):
            _check(driver.cuGraphExecDestroy(graph))
        self._recorded.clear()

    def _record(self, launch: Callable[[], None]) -> Any:
        from cuda.bindings import driver  # noqa: PLC0415  (extra gpu)

        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        _check(driver.cuStreamBeginCapture(self._stream.handle, mode))
        try:
            launch()
        finally:
            graph = _check(driver.cuStreamEndCapture(self._stream.handle))
        executable = _check(driver.cuGraphInstantiate(graph, 0))
        _check(driver.cuGraphDestroy(graph))
        return executable


def _check(answer: tuple[Any, ...]) -> Any:
    """The result of a call of the driver; raises RuntimeError with CUDA's name of an error."""
    status, *result = answer
    if int(status):
        raise RuntimeError(f"a CUDA graph could not be recorded or launched: {status.name}")
    return result[0] if result else None
