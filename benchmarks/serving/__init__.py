"""Benchmarks of the running service, and their shared code."""
