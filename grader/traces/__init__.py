"""Traces of requests: drawn, driven through an engine, and their answers read."""
