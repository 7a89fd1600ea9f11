"""What hybrid search scores by: weights of its columns, coverage, calibration, and when it does not know (docs/results/quality.md)."""
