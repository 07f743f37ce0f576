"""`python -m grader`."""

import signal
import sys

from grader.cli import main

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.default_int_handler)  # as Ctrl-C: no process is left behind
sys.exit(main())
