"""The process that runs a submission, and the trusted side's way to talk to it."""
