"""Metrics, traces, log lines, the query log and the feedback log."""
