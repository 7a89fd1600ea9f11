"""Studies of late interaction over the towers' token embeddings (docs/results/quality.md)."""
