"""What the kernels of a submission do to memory, line by line: `python -m grader profile`."""
