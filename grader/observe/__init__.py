"""What the device reported of a submission, as the grader reads it: counters, memory traffic, findings."""
