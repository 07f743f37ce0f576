"""What compute-sanitizer prints is read right, and its report is about the bugs as they are."""

import json

from tests.bugs.bugs import load_bugs
from tests.gpu.sanitizer import REPORT, TABLE, TOOLS, findings, table

MEMCHECK = """\
========= COMPUTE-SANITIZER
text of the program
========= Invalid __global__ read of size 4 bytes
=========     at past_the_end+0x90 in global_memory.cu:8
=========     by thread (36,0,0) in block (1,0,0)
=========     Access at 0x7f0000000190 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: run [0x1] in program.cu:3
=========
========= Program hit unspecified launch failure (error 719) on CUDA API call to cuCtxSynchronize.
=========     Saved host backtrace up to driver entry point at error
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at missing_barrier+0x90 in shared_races.cu:6
=========     and Read access at missing_barrier+0xd0 in shared_races.cu:8 [252 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_findings_are_read_with_their_lines() -> None:
    assert findings(MEMCHECK) == [{"text": "Invalid __global__ read of size 4 bytes", "lines": [8]}]
    assert findings(RACECHECK) == [
        {"text": "Error: Race reported between Write access and Read access", "lines": [6, 8]}
    ]
    assert findings("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == []


def test_the_report_is_about_these_bugs() -> None:
    report = json.loads(REPORT.read_text())
    assert report["bugs"].keys() == report["emulator"].keys() == {bug.id for bug in load_bugs() if bug.wrong}
    assert all(said.keys() == TOOLS.keys() for said in report["bugs"].values())
    assert TABLE.read_text() == table(report)
