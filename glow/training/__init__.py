"""Trains models: data, losses, recipes, one loop, checkpoints. Needs the `train` extra."""

from glow.training.checkpoint import load_checkpoint, save_checkpoint, save_preprocessing
from glow.training.config import OptimizerConfig, TrainConfig
from glow.training.data import Collection, PairBatches, count_terms, read_collection
from glow.training.distil import QueryTexts, query_recipe, teller
from glow.training.encode import EncodedCorpus, EncodeOptions, Source, vectors
from glow.training.from_model import read_towers
from glow.training.given import Given
from glow.training.impacts import TrainedImpacts, load_impacts
from glow.training.initial import initial_towers, with_few_layers
from glow.training.job import train
from glow.training.pretraining import PretrainConfig, load_pretrained, return_to_tower
from glow.training.rerank import load_reranker
from glow.training.run import REPORT_FILE, Place, Progress, Recipe, TrainingDevice, WatchConfig, kind_of, run
from glow.training.synthesis import SynthesisOptions, synthesize
from glow.training.tower_loss import TowerLoss
from glow.training.watch import Watch

__all__ = [
    "REPORT_FILE", "Collection", "EncodeOptions", "EncodedCorpus", "Given", "OptimizerConfig", "PairBatches", "Place", "PretrainConfig", "Progress",
    "QueryTexts", "Recipe", "Source", "SynthesisOptions", "TowerLoss", "TrainConfig", "TrainedImpacts", "TrainingDevice", "Watch", "WatchConfig",
    "count_terms", "initial_towers", "kind_of", "load_checkpoint", "load_impacts", "load_pretrained", "load_reranker", "query_recipe", "read_collection",
    "read_towers", "return_to_tower", "run", "save_checkpoint", "save_preprocessing", "synthesize", "teller", "train", "vectors",
    "with_few_layers",
]  # fmt: skip
