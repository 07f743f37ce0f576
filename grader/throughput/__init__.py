"""Timed workloads, their thresholds, and the calibration of a GPU."""
