"""`python -m grader run`: any PyCUDA script on the emulated GPU, unchanged, whether or not PyCUDA is installed.

The script runs in a process of its own whose `import pycuda` finds the emulated one. The device process belongs to
this process, which alone can turn checks on and read their reports; on request a debugger stops the script's kernels.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from grader import UsageError
from grader.commands import Subparsers, read_seed
from grader.emulator.compiler.toolchain import CompileError, compiler
from grader.emulator.launcher import DeviceError, DeviceProcess, start_device
from grader.text import clean

CLIENT = Path(__file__).resolve().parent / "client"
INTERRUPTED = 130
NEVER_STOPPED = r"""if !$_isvoid($_exitcode)
  echo PagedLab: no thread stopped at {where}. Compiled kernels:\n
  pipe info variables -q ^pagedlab_kernel_ | sed -n 's/.* pagedlab_kernel_\(.*\);/  \1/p'
end
"""
"""For gdb, when its first `continue` has come back."""


def add_run(commands: Subparsers) -> None:
    parser = commands.add_parser("run", help="run a PyCUDA script on the emulator")
    parser.set_defaults(run=run_script)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--check", action="store_true", help="report races, bad accesses and the like in kernels")
    way.add_argument("--debug", metavar="WHERE", help="stop in gdb there: a kernel's name, or kernel.cu:LINE")
    parser.add_argument(
        "--seed", type=read_seed, default=0, metavar="N", help="order of threads: 0 is that of their numbers"
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
    if options.debug and shutil.which("gdb") is None:
        raise UsageError("--debug needs gdb, which is not installed (Debian, Ubuntu: apt install gdb).")
    device = start_device(1 if options.debug else None, inherit_output=True, debug=bool(options.debug))
    try:
        device.control.set_mode(order_seed=options.seed)
        if options.check:
            device.control.observe(checked=True)
        debugger = _attach_debugger(device, options.debug) if options.debug else None
        code = _run(device, [options.script, *options.arguments], has_terminal=debugger is None)
        if options.check and code != INTERRUPTED:
            has_errors = _tell_reports(device, " before the script failed" if code else "")
            code = code or int(has_errors)
        if debugger:
            device.channel.close()  # what is left of the kernels runs to its end, under the debugger
            debugger.wait()
        elif code != INTERRUPTED:
            device.close()
        return code
    finally:
        device.kill()


def _run(device: DeviceProcess, command: list[str], *, has_terminal: bool) -> int:
    """The exit code of a Python script on the device, in a shell's way: 128 + n for an end by signal n."""
    path = os.pathsep.join(filter(None, (str(CLIENT), os.environ.get("PYTHONPATH"))))
    script = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | device.environment() | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        pass_fds=device.pass_fds,
        stdin=None if has_terminal else subprocess.DEVNULL,
        start_new_session=not has_terminal,
    )
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches the script, or the debugger, too
    signal.signal(signal.SIGTERM, lambda *_: script.terminate())
    code = script.wait()
    return 128 - code if code < 0 else code


def _attach_debugger(device: DeviceProcess, where: str) -> "subprocess.Popen[bytes]":
    """gdb on the device process, with a breakpoint there; returns once the device runs under it."""
    ready, attached = os.pipe()
    with tempfile.TemporaryFile() as ending:
        ending.write(NEVER_STOPPED.format(where=where).encode())
        ending.flush()
        commands = [
            "set confirm off", "set print thread-events off", "set print inferior-events off",
            "set filename-display basename", "set breakpoint pending on",
            f"pipe attach {device.process.pid} | cat >/dev/null", f"pipe break {where} | cat >/dev/null",
            f"shell echo >/dev/fd/{attached}", "continue", f"source /dev/fd/{ending.fileno()}",
        ]  # fmt: skip
        words = [word for command in commands for word in ("-ex", command)]
        try:
            debugger = subprocess.Popen(
                ["gdb", "-q", "-nx", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off", *words],
                pass_fds=[attached, ending.fileno()],
            )
            os.close(attached)
            os.read(ready, 1)
        finally:
            os.close(ready)
    return debugger


def _tell_reports(device: DeviceProcess, until: str) -> bool:
    """Print what the checks found in kernels (and until when), and whether any of it is an error."""
    try:
        reports: list[dict[str, Any]] = device.control.observed()["reports"]
    except DeviceError as error:
        print(f"PagedLab: the checks have no result, the emulated GPU stopped: {clean(error)}", file=sys.stderr)
        return True
    for report in reports:
        print(f"\n{_described(report)}", file=sys.stderr)
    errors = sum(report["is_error"] for report in reports)
    remarks = len(reports) - errors
    found = f"{_counted(errors, 'error')}, {_counted(remarks, 'remark')}{until}"
    print(f"\nPagedLab: the checks found {found}", file=sys.stderr)
    return errors > 0


def _described(report: dict[str, Any]) -> str:
    """One report: a line with verdict and kernel, the source lines of the accesses, what happened."""
    times = f", {report['count']} times" if report["count"] > 1 else ""
    places = [place for place in (report["access"], report["other"]) if place and place["text"]]
    source = [f"{line:6} | {text}" for line, text in sorted({(place["line"], place["text"]) for place in places})]
    message = textwrap.wrap(report["message"], 110, initial_indent="  ", subsequent_indent="  ")
    return clean("\n".join([f"{report['verdict']} in kernel {report['kernel']}{times}", *source, *message]))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
