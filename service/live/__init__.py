"""The live version: loading, warm-up, watching CURRENT, and hot swaps without losing a request."""
