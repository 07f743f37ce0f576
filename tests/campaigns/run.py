"""Run campaigns: `python -m tests.campaigns.run [--limit N] [--keep] [NAME ...]`; without a name all of them.

A run that was killed or interrupted goes on where it stopped when the same command is given again. Exit code 0 when all
rows have run and are as they must be, 1 when one is not or some are left, 130 when it was interrupted. With --keep a
change of the kit does not begin again: after checks were added, delete the lines that these may change and run those.
"""

import argparse
import os
import sys
from pathlib import Path

from tests.campaigns import mutants, random_mutants
from tests.campaigns.campaign import Report, run_campaign

CAMPAIGNS = {campaign.name: campaign for campaign in (mutants.CAMPAIGN, random_mutants.CAMPAIGN)}
FOLDER = Path(__file__).resolve().parent
AT_A_TIME = min(2, os.cpu_count() or 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.run")
    parser.add_argument("campaigns", nargs="*", metavar="NAME", help=", ".join(CAMPAIGNS))
    parser.add_argument("--limit", type=int, metavar="N", help="run this many rows at most")
    parser.add_argument("--keep", action="store_true", help="keep the rows that another state of the kit has written")
    options = parser.parse_args()
    unknown = set(options.campaigns) - CAMPAIGNS.keys()
    if unknown:
        parser.error(f"unknown campaign {', '.join(sorted(unknown))}; known are {', '.join(CAMPAIGNS)}")
    code = 0
    for name in options.campaigns or CAMPAIGNS:
        report = Report(FOLDER / f"{name}.jsonl", CAMPAIGNS[name], options.keep)
        run_campaign(report, AT_A_TIME, options.limit)
        for record in report.failed:
            print(f"{record['row']}, seed {record['seed']}: {'; '.join(record['complaints'])}")
        for line in CAMPAIGNS[name].summary(list(report.records.values())):
            print(line)
        minutes = sum(record["seconds"] for record in report.records.values()) / 60
        print(
            f"{name}: {len(report.records)} of {len(CAMPAIGNS[name].keys)} rows, {len(report.failed)} failed, "
            f"{minutes:.0f} minutes of gradings; {report.path}"
        )
        code = code or int(bool(report.failed or report.missing))
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
