"""What NVIDIA's compute-sanitizer says of the seeded bugs (tests/bugs), beside what the emulator says.

    python -m tests.gpu.sanitizer           writes tests/gpu/sanitizer.json and sanitizer.md (needs a GPU, PyCUDA, nvcc)
    python -m tests.gpu.sanitizer --table   only the emulator's side and the table again

Every bug runs in a process of its own under each of the four tools, since one error ends a context. The right twins run
together, in one process a tool.
"""

import argparse
import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from grader import KIT
from tests.bugs.bugs import Bug, load_bugs, source_text, sources
from tests.bugs.emulated import Bench
from tests.gpu.agreement import machine
from tests.gpu.records import write_records

REPORT, TABLE = (Path(__file__).with_name(f"sanitizer.{ending}") for ending in ("json", "md"))
TOOLS = {
    "memcheck": ["--leak-check", "no"],
    "racecheck": ["--racecheck-report", "analysis"],
    "initcheck": ["--initcheck-address-space", "all"],
    "synccheck": [],
}
FITTING = {
    "OUT_OF_BOUNDS": "memcheck",
    "MISALIGNED_ACCESS": "memcheck",
    "DATA_RACE": "racecheck",
    "UNINITIALISED_READ": "initcheck",
    "BARRIER_DIVERGENCE": "synccheck",
}
PARALLEL = 10
MANY = ["--max-connections", "64"]  # each tool that runs takes a port of its own
HUNG_SECONDS = 20.0
ALL_SECONDS = 220.0
"""Tools that do not fit a bug's kind are not run any more after this time."""

NO_FINDING = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY", "Target application")
CONSEQUENCES = ("Program hit", "Error: process didn't", "Error: Target application")
"""Of the first error, in the program's own calls."""
NOT_RUN = "not run"
FRAME = re.compile(r"(?:Host|Device) Frame|Saved host backtrace")
PLACE = re.compile(r" (?:at|by) \S+\+0x[0-9a-f]+(?: in \S+)?")

Finding = dict[str, Any]
"""{"text": a tool's sentence, "lines": of the source}; an empty text: it said nothing."""


def compile_all(folder: Path) -> None:
    """One cubin for each file, named FILE.cubin."""
    import pycuda.driver as driver

    driver.init()
    major, minor = driver.Device(0).compute_capability()

    def compile_file(name: str) -> None:
        source = folder / name
        source.write_text(source_text(name))
        command = ["nvcc", "-cubin", f"-arch=sm_{major}{minor}", "-std=c++17", "-lineinfo", "-w"]
        subprocess.run([*command, "-o", f"{source}bin", str(source)], check=True)

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_file, [path.name for path in sources()]))


def watched(tool: str, names: list[str], folder: Path, seconds: float) -> str:
    """The tool's whole output; what it said until then when the kernels do not end."""
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "20", *_known_options(tool)]
    command += [sys.executable, "-m", "tests.bugs.on_gpu", str(folder), *names]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=KIT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        end = ""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            end = f"\n========= The kernel did not end within {seconds:.0f} s\n"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        return output.read().decode("utf-8", "replace") + end


def _known_options(tool: str) -> list[str]:
    """Of the options those that this version has: initcheck looks at shared memory since 2025.4 only."""
    return [word for option in (TOOLS[tool], MANY) if option and option[0] in _said("--help") for word in option]


@functools.cache
def _said(option: str) -> str:
    return subprocess.run(["compute-sanitizer", option], capture_output=True, text=True).stdout


def findings(output: str) -> list[Finding]:
    """The sentences of a tool, each with the lines of the source that it or its details name."""
    found: list[Finding] = []
    for line in output.splitlines():
        text = line.removeprefix("=========").removeprefix(" ")
        if not line.startswith("=========") or FRAME.search(text):
            continue
        if text.strip() and not text.startswith((" ", *NO_FINDING)):
            found.append({"text": PLACE.sub("", text).strip(), "lines": []})
        elif found and text.strip().startswith("and ") and " access" in text:  # the second of a race
            found[-1]["text"] += PLACE.sub("", text.rstrip().partition(" [")[0]).replace("    and", " and")
        if found:
            found[-1]["lines"] += [int(number) for number in re.findall(r"\.cu:(\d+)", text)]
    return [finding for finding in found if not finding["text"].startswith(CONSEQUENCES)]


def watch_bugs(folder: Path) -> dict[str, dict[str, Finding]]:
    """Per bug and tool the first thing that it said; fitting tools first."""
    bugs = [bug for bug in load_bugs() if bug.wrong]
    jobs = [(bug, tool) for bug in bugs for tool in TOOLS]
    jobs.sort(key=lambda job: FITTING.get(str(job[0].verdict)) != job[1])
    begin = time.monotonic()

    def watch(job: tuple[Bug, str]) -> Finding:
        bug, tool = job
        if time.monotonic() - begin > ALL_SECONDS:
            return {"text": NOT_RUN, "lines": []}
        said = findings(watched(tool, [bug.id], folder, HUNG_SECONDS))
        return said[0] if said else {"text": "", "lines": []}

    results: dict[str, dict[str, Finding]] = {bug.id: {} for bug in bugs}
    with ThreadPoolExecutor(PARALLEL) as pool:
        for (bug, tool), finding in zip(jobs, pool.map(watch, jobs), strict=True):
            results[bug.id][tool] = finding
    return results


def watch_right_twins(folder: Path) -> dict[str, list[Finding]]:
    """Per tool all that it said of the right twins."""
    names = [bug.right.kernel for bug in load_bugs()]
    with ThreadPoolExecutor() as pool:
        outputs = pool.map(lambda tool: watched(tool, names, folder, 4 * HUNG_SECONDS), TOOLS)
        return {tool: findings(output) for tool, output in zip(TOOLS, outputs, strict=True)}


def refuse_unsupported(folder: Path) -> None:
    """Stop where the tools cannot watch this GPU."""
    output = watched("memcheck", ["past_the_end"], folder, 60)
    if not any("Invalid" in finding["text"] for finding in findings(output)):
        sys.exit(f"compute-sanitizer does not find the first bug on this machine:\n{output}")


# The emulator's side, and the table


def emulated() -> dict[str, list[Finding]]:
    """Per bug the emulator's reports: verdict, lines, address, message."""
    bench, results = Bench(), {}
    for bug in load_bugs():
        if bug.wrong:
            reports = bench.run(bug.file, bug.wrong).reports
            results[bug.id] = [
                {
                    "verdict": report["verdict"],
                    "lines": [
                        place["line"] for place in (report["access"], report["other"]) if place and place["line"]
                    ],
                    "address": report["address"],
                    "message": report["message"],
                }
                for report in reports
            ]
    bench.close()
    return results


def table(report: dict[str, Any]) -> str:
    tools = list(TOOLS)
    lines = [
        "# The seeded bugs: compute-sanitizer and the emulator",
        "",
        f"{report['machine']['gpu']}, {report['machine']['nvcc']}, {report['machine']['date']}. Numbers are lines of "
        "the file; an empty cell: nothing was said. Made by `python -m tests.gpu.sanitizer`.",
        "",
        f"Of {len(report['bugs'])} bugs compute-sanitizer said something of {num_said(report)}.",
    ]
    for path in sources():
        rows = [bug for bug in load_bugs() if bug.file == path.name and bug.wrong]
        if rows:
            lines += ["", f"## {path.name}", "", f"| bug | emulator | {' | '.join(tools)} |", "|---" * 6 + "|"]
        for bug in rows:
            said = report["bugs"][bug.id]
            cells = [_ours(bug, report["emulator"][bug.id]), *(_theirs(said[tool]) for tool in tools)]
            lines.append(f"| {bug.id} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Right twins",
        "",
        "What was said of the kernels in which nothing is wrong; the emulator: nothing.",
    ]
    for tool in tools:
        said = report["right"][tool]
        lines += ["", f"- {tool}: {'nothing' if not said else ''}", *(f"  - {_theirs(finding)}" for finding in said)]
    return "\n".join([*lines, ""])


def num_said(report: dict[str, Any]) -> int:
    """Bugs of which at least one tool said something."""
    return sum(
        any(finding["text"] not in ("", NOT_RUN) for finding in said.values()) for said in report["bugs"].values()
    )


def _ours(bug: Bug, reports: list[Finding]) -> str:
    if bug.differs:
        return "results differ between orders"
    if not reports:
        return ""
    first = reports[0]
    places = ", ".join(map(str, sorted(set(first["lines"]))))
    remark = " (remark)" if bug.is_remark else ""
    return f"{places}: {first['verdict']}{remark} {_plain(first['address'] or '')}".strip()


def _theirs(finding: Finding) -> str:
    places = ", ".join(map(str, sorted(set(finding["lines"]))))
    return f"{places}: {_plain(finding['text'])}" if places else _plain(finding["text"])


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.sanitizer")
    parser.add_argument("--table", action="store_true")
    if parser.parse_args().table:
        report = json.loads(REPORT.read_text())
    else:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            compile_all(folder)
            refuse_unsupported(folder)
            about = machine() | {"compute-sanitizer": " ".join(_said("--version").split())}
            report = {"machine": about, "bugs": watch_bugs(folder), "right": watch_right_twins(folder)}
    report["emulator"] = emulated()
    write_records(REPORT, report)
    TABLE.write_text(table(report))
    print(f"compute-sanitizer said something of {num_said(report)} of {len(report['bugs'])} bugs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
