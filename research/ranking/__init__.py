"""Studies of hybrid scores: weights, coverage, calibration and unanswerable queries (docs/results/quality.md)."""
