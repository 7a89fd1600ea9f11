"""Simulated users, and learning from their clicks (docs/results/quality.md)."""
