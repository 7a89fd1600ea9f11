"""Distills a smaller query tower of an encoder from unlabeled texts."""

from glow.training.distil.queries import QueryTexts, query_recipe, teller

__all__ = ["QueryTexts", "query_recipe", "teller"]
