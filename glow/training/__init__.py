"""Trains models: data, losses, recipes, one loop, checkpoints. Needs the `train` extra."""

from glow.training.checkpoint import (
    kind_of,
    load_checkpoint,
    load_impacts,
    load_pretrained,
    read_towers,
    save_checkpoint,
)
from glow.training.commands import train
from glow.training.data import Collection, Given, read_collection
from glow.training.encode import EncodedCorpus, Source, vectors
from glow.training.rerank import load_reranker
from glow.training.run import Place, Progress, TrainingDevice, run
from glow.training.synthesis import SynthesisOptions, synthesize
from glow.training.teacher import QueryTexts, query_recipe, teller
from glow.training.towers import TrainConfig, initial_towers, with_few_layers

__all__ = [
    "Collection", "EncodedCorpus", "Given", "Place", "Progress", "QueryTexts", "Source", "SynthesisOptions",
    "TrainConfig", "TrainingDevice", "initial_towers", "kind_of", "load_checkpoint", "load_impacts", "load_pretrained",
    "load_reranker", "query_recipe", "read_collection", "read_towers", "run", "save_checkpoint",
    "synthesize", "teller", "train", "vectors", "with_few_layers",
]  # fmt: skip
