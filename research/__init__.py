"""Studies and recipes that are not part of the product; each runs as `python -m research.NAME`."""
