"""Variants of the model under one budget."""
