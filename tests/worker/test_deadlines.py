"""How long calls may take, and what is said of those that take longer."""

import time

from grader.worker.connection import LATE_SECONDS, Deadlines


def test_an_endless_kernel_has_less_time_in_later_checks() -> None:
    deadlines = Deadlines()
    deadlines.start(30)
    deadlines.last_call = "k(x[3] f32)"
    assert deadlines.timeout(emulated=False, launched=True).message.endswith("a barrier that some threads never reach.")
    assert deadlines.call_deadline() - time.monotonic() > 9
    assert "k did not return within 10 s" in deadlines.timeout(emulated=True, launched=True).message
    deadlines.start(30)
    deadlines.last_call = "k(x[5] f32)"
    assert deadlines.call_deadline() - time.monotonic() <= LATE_SECONDS
    assert "k did not return within 3 s" in deadlines.timeout(emulated=True, launched=True).message
    deadlines.last_call = "other(x[5] f32)"
    assert deadlines.call_deadline() - time.monotonic() > 9
