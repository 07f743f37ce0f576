"""`python -m grader`."""

import signal
import sys

from grader.cli import main

for number in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP: what it started is to outlive a terminal
        signal.signal(number, signal.default_int_handler)  # as Ctrl-C: no process is left behind
sys.exit(main())
