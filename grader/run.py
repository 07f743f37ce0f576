"""`python -m grader run`: any PyCUDA script on the emulated GPU, unchanged, whether or not PyCUDA is installed.

The script runs in a process of its own whose `import pycuda` finds the emulated one. The device process belongs to
this process, which alone can turn checks on and read their reports; on request a debugger stops the script's kernels.
"""

import argparse
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader import UsageError
from grader.emulator.launcher import DeviceError, DeviceProcess, start_device
from grader.emulator.toolchain import CompileError, compiler
from grader.interrupts import interruptible
from grader.report.text import clean

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT = Path(__file__).resolve().parent / "emulator" / "client"
INTERRUPTED = 130


def add_run(commands: "Subparsers", seed: Callable[[str], int]) -> None:
    """Add the command; `seed` reads the option of that name."""
    parser = commands.add_parser("run", help="run a PyCUDA script on the emulator")
    parser.set_defaults(run=run_script)
    parser.add_argument("--check", action="store_true", help="report races, bad accesses and the like in kernels")
    parser.add_argument("--debug", metavar="WHERE", help="stop in gdb there: a kernel's name, or kernel.cu:LINE")
    parser.add_argument(
        "--seed", type=seed, default=0, metavar="N", help="order of threads: 0 is that of their numbers"
    )
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG", help="of the script")


def run_script(options: argparse.Namespace) -> int:
    """Run the script: its exit code, 1 if it succeeded but checks reported errors. Raises UsageError."""
    if not Path(options.script).is_file():
        raise UsageError(f"there is no script {options.script}.")
    try:
        compiler()
    except CompileError as error:
        raise UsageError(str(error).strip()) from None
    device = start_device(1 if options.debug else None, inherit_output=True, debug=bool(options.debug))
    try:
        device.control.set_mode(order_seed=options.seed)
        if options.check:
            device.control.observe(counted=False, checked=True)
        code = _run(device, options)
        if options.check and code != INTERRUPTED:
            code = _tell_reports(device) or code
        if code != INTERRUPTED:
            device.close()  # lets the kernels that still run come to their end
        return code
    finally:
        device.kill()


def _run(device: DeviceProcess, options: argparse.Namespace) -> int:
    """The exit code of the script on the device, in a shell's way: 128 + n for an end by signal n."""
    path = os.pathsep.join(filter(None, (str(CLIENT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | device.environment() | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    debugger = _attach_debugger(device, options.debug) if options.debug else None
    script = subprocess.Popen(
        [sys.executable, options.script, *options.arguments],
        env=environment,
        pass_fds=device.pass_fds,
        stdin=subprocess.DEVNULL if debugger else None,
        start_new_session=debugger is not None,  # the terminal is the debugger's
    )
    try:
        with interruptible(lambda: None):  # Ctrl-C reaches the script too: what comes of it is the script's affair
            code = script.wait()
    finally:
        script.kill()
        script.wait()
    if debugger:
        debugger.wait()
    return 128 - code if code < 0 else code


def _attach_debugger(device: DeviceProcess, where: str) -> "subprocess.Popen[bytes]":
    """gdb on the device process, with a breakpoint there; returns once the device runs under it."""
    gdb = shutil.which("gdb")
    if gdb is None:
        raise UsageError("--debug needs gdb, which is not installed (Debian, Ubuntu: apt install gdb).")
    ready, attached = os.pipe()
    commands = [
        "set confirm off", "set print thread-events off", "set breakpoint pending on",
        f"break {where}", f"shell echo >&{attached}", "continue",
    ]  # fmt: skip
    words = [word for command in commands for word in ("-ex", command)]
    try:
        debugger = subprocess.Popen(
            [gdb, "-q", "-nx", "-iex", "set debuginfod enabled off", "-p", str(device.process.pid), *words],
            pass_fds=[attached],
        )
        os.close(attached)
        os.read(ready, 1)
    finally:
        os.close(ready)
    return debugger


def _tell_reports(device: DeviceProcess) -> bool:
    """Print what the checks found in kernels, and whether any of it is an error."""
    try:
        reports: list[dict[str, Any]] = device.control.observed()["reports"]
    except DeviceError as error:
        print(f"PagedLab: the checks have no result, the emulated GPU stopped: {clean(error)}", file=sys.stderr)
        return True
    for report in reports:
        print(f"\n{_described(report)}", file=sys.stderr)
    errors = sum(report["is_error"] for report in reports)
    remarks = len(reports) - errors
    print(f"\nPagedLab: the checks found {_counted(errors, 'error')}, {_counted(remarks, 'remark')}", file=sys.stderr)
    return errors > 0


def _described(report: dict[str, Any]) -> str:
    """One report: a line with verdict and place, the source line where it can be read, what happened."""
    access = report["access"]
    times = f", {report['count']} times" if report["count"] > 1 else ""
    lines = [f"{report['verdict']} in kernel {report['kernel']}, {access['file']}:{access['line']}{times}"]
    if source := _source_line(access["file"], access["line"]):
        lines.append(f"{access['line']:6} | {source}")
    return clean(
        "\n".join([*lines, textwrap.fill(report["message"], 110, initial_indent="  ", subsequent_indent="  ")])
    )


def _source_line(file: str, line: int) -> str:
    """A line of a file, without its indentation; empty where that cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()[line - 1].strip()
    except (OSError, IndexError):
        return ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
