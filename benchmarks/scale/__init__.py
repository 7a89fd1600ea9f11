"""Benchmarks over a million and more synthetic vectors that resemble real ones."""
