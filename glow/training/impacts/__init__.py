"""Training of learned impacts: a head over a model's frozen towers."""

from glow.training.impacts.checkpoint import IMPACTS_FILE, TrainedImpacts, load_impacts, save_impacts
from glow.training.impacts.config import ImpactsConfig
from glow.training.impacts.job import ImpactsInputs, train_impacts
from glow.training.impacts.trainer import ranknet_loss

__all__ = [
    "IMPACTS_FILE", "ImpactsConfig", "ImpactsInputs", "TrainedImpacts", "load_impacts", "ranknet_loss", "save_impacts", "train_impacts",
]  # fmt: skip
