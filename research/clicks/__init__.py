"""Simulated users, and what their clicks teach (docs/results/quality.md)."""
