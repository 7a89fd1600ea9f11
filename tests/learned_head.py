"""An untrained head of learned impacts for the toy model; needs torch, so it is made once a run and only where it is asked for."""

from pathlib import Path

import torch

from glow.nn import TermImpacts
from glow.runtime import Model
from glow.training.checkpoint import TrainedImpacts, save_impacts
from glow_model_export.outputs import add_head

DIMENSIONS = 16


def untrained_head(hidden: int, seed: int = 0) -> TermImpacts:
    """A head whose cut leaves most words out."""
    torch.manual_seed(seed)
    head = TermImpacts(hidden, DIMENSIONS)
    with torch.no_grad():
        head.cut.fill_(0.4)
    return head.eval()


def add_untrained_head(model: Path, checkpoint: Path, seed: int = 0) -> None:
    """Gives a model such a head, in place; the folder `checkpoint` is made on the way."""
    opened = Model.open(model)
    head = untrained_head(opened.encoder("query").dimensions, seed)
    priors = {"bees": 0.5, "home": 0.3, "unheard": 0.2}
    save_impacts(checkpoint, TrainedImpacts(head, opened.hash, priors, {"made": "by a test"}))
    add_head(model, checkpoint, model, replace=True)
