"""Trains learned impacts: a head over a model's frozen towers."""

from glow.training.impacts.checkpoint import TrainedImpacts, load_impacts, save_impacts
from glow.training.impacts.config import ImpactsConfig
from glow.training.impacts.recipe import impacts_recipe

__all__ = ["ImpactsConfig", "TrainedImpacts", "impacts_recipe", "load_impacts", "save_impacts"]
