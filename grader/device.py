"""Decides where value checks run: on a GPU that PyCUDA can use, else on the emulator."""

import importlib.util
import subprocess
import sys
from dataclasses import dataclass

from grader.emulator.compiler import toolchain

PROBE = "import pycuda.driver as driver; driver.init(); print('GPU', driver.Device(0).name())"
PROBE_SECONDS = 60


class NothingToGradeOn(Exception):
    """This machine has no device of the kind that was asked for."""


@dataclass(frozen=True)
class GradedDevice:
    """`kind` is "cpu" or "gpu", `asked` what the user asked for, `reason` why auto took the CPU."""

    kind: str
    name: str
    asked: str
    reason: str = ""


def choose_device(asked: str) -> GradedDevice:
    """The device for "auto", "cpu" or "gpu".

    Raises NothingToGradeOn for "gpu" where there is none, and where there is no compiler for the emulator.
    """
    try:
        toolchain.compiler()
    except toolchain.CompileError as error:
        raise NothingToGradeOn(error.log.strip()) from None
    if asked == "cpu":
        return GradedDevice("cpu", "emulator", asked)
    name, reason = probe_gpu()
    if name:
        return GradedDevice("gpu", name, asked)
    if asked == "gpu":
        remedy = "use DEVICE=cpu, or a machine with an NVIDIA GPU after make setup EXTRAS=gpu"
        raise NothingToGradeOn(f"DEVICE=gpu, but {reason}; {remedy}.")
    return GradedDevice("cpu", "emulator", asked, reason)


def has_compiled() -> bool:
    """Whether the emulator has compiled a kernel on this machine before; the first takes long."""
    return any(toolchain.CACHE.glob("module-*.so"))


def probe_gpu() -> tuple[str, str]:
    """(name of the GPU, "") or ("", why there is none); asked in a process of its own, since drivers crash and hang."""
    if importlib.util.find_spec("pycuda") is None:
        return "", "PyCUDA is not installed"
    command = [sys.executable, "-I", "-c", PROBE]
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "", f"PyCUDA did not answer within {PROBE_SECONDS} s"
    if result.returncode == 0 and result.stdout.startswith("GPU "):
        return result.stdout[4:].strip(), ""
    said = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
    return "", f"PyCUDA finds no GPU: {said[-1]}"
