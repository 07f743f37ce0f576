"""Run the conformance suite on a GPU and on the emulator, and compare both with NumPy and with each other.

    python -m tests.gpu.conformance     writes tests/gpu/conformance.json (needs an NVIDIA GPU and PyCUDA)

Integers must be equal; floating point results may be off by what each case states, and the devices' by that of both.
"""

import hashlib
import sys
from math import inf
from pathlib import Path
from typing import Any

from grader import KIT
from tests.conformance.cases import ALONE, CASES
from tests.conformance.devices import run_emulated, run_on_gpu
from tests.conformance.distance import distance
from tests.conformance.numbers.numerics import FORMULAS
from tests.conformance.table import Case, error, errors
from tests.gpu.agreement import machine
from tests.gpu.records import write_records

REPORT = Path(__file__).with_name("conformance.json")
FOLDERS = ("tests/conformance", "grader/emulator/include", "grader/emulator/runtime")

Row = dict[str, Any]


def compare() -> dict[str, Row]:
    """Per case: errors of the GPU, of the emulator and between them, in units in the last place, and what is allowed.

    What a device does not run is told on stderr, and infinitely wrong.
    """
    names = [case.name for case in [*CASES, *FORMULAS]]
    gpu, emulator = run_on_gpu(names), run_emulated(names)
    for found in (gpu, emulator):
        print(found.failure, end="", file=sys.stderr)
    rows: dict[str, Row] = {}
    for case in [*CASES, *FORMULAS]:
        if case.name not in gpu.results or case.name not in emulator.results:
            rows[case.name] = {"gpu": inf, "emulator": inf, "difference": inf, "allowed": case.ulps}
            continue
        on_gpu, on_emulator = gpu.results[case.name], emulator.results[case.name]
        launch = case.launch()
        measure = distance if launch.by_number else error
        between = max(measure(a, b) for a, b in zip(on_gpu, on_emulator, strict=True))
        rows[case.name] = {
            "gpu": errors(launch, on_gpu),
            "emulator": errors(launch, on_emulator),
            "difference": between,
            "allowed": case.ulps,
        }
    return rows | {case.name: compare_words(case) for case in ALONE}


def compare_words(case: Case) -> Row:
    """What a kernel prints or how it fails: 0 where a device says what it must, else 1."""
    said = [found.printed + found.failure for found in (run_on_gpu([case.name]), run_emulated([case.name]))]
    gpu, emulator = (int(case.says not in text) for text in said)
    return {"gpu": gpu, "emulator": emulator, "difference": gpu ^ emulator, "allowed": 0}


def agree(rows: dict[str, Row]) -> bool:
    return all(
        max(row["gpu"], row["emulator"]) <= row["allowed"] and row["difference"] <= 2 * row["allowed"]
        for row in rows.values()
    )


def source_hashes() -> dict[str, str]:
    """sha256 of what the report is about: the cases, their kernels, the emulator's headers and runtime."""
    files = [
        path for folder in FOLDERS for path in (KIT / folder).rglob("*") if path.suffix in (".cu", ".py", ".h", ".cpp")
    ]
    return {str(path.relative_to(KIT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def main() -> int:
    rows = compare()
    write_records(REPORT, {"machine": machine(), "cases": rows, "sources": source_hashes()})
    for name, row in rows.items():
        print(
            f"{name:<40} gpu {row['gpu']:8.2f}  emulator {row['emulator']:8.2f}  between {row['difference']:8.2f}"
            f"  allowed {row['allowed']:6.2f}{'' if agree({name: row}) else '  DIFFERS'}"
        )
    return 0 if agree(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
