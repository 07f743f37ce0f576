"""One grading of one submission: taken in, planned, run, recorded."""
