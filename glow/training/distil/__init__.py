"""Distillation of an encoder's own query tower, from texts without labels."""

from glow.training.distil.queries import QueryTexts, query_recipe

__all__ = ["QueryTexts", "query_recipe"]
