"""Benchmarks; each prints a report, and `python -m benchmarks` lists them."""
