"""What checks are written with: the API of a check, property testing, drawn inputs, probes."""
