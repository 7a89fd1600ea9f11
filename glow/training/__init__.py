"""Training: data, losses, loop, checkpoints. Needs the `train` extra."""

from glow.training.checkpoint import (
    REPORT_FILE,
    TOWERS_FILE,
    load_checkpoint,
    save_checkpoint,
    save_preprocessing,
)
from glow.training.config import OptimizerConfig, TrainConfig, WatchConfig
from glow.training.data import Collection, PairBatches, count_terms, read_collection
from glow.training.device import TrainingDevice
from glow.training.encode import EncodeOptions, vectors
from glow.training.from_model import read_towers
from glow.training.impacts import IMPACTS_FILE, TrainedImpacts, load_impacts
from glow.training.job import TrainInputs, initial_towers, train
from glow.training.loop import Trainer
from glow.training.progress import Progress
from glow.training.rerank import CROSS_FILE, load_reranker
from glow.training.watch import Watch

__all__ = [
    "CROSS_FILE", "IMPACTS_FILE", "REPORT_FILE", "TOWERS_FILE", "Collection", "EncodeOptions", "OptimizerConfig", "PairBatches",
    "Progress", "TrainConfig", "TrainInputs", "TrainedImpacts", "Trainer", "TrainingDevice", "Watch", "WatchConfig",
    "count_terms", "initial_towers", "load_checkpoint", "load_impacts", "load_reranker", "read_collection", "read_towers",
    "save_checkpoint", "save_preprocessing", "train", "vectors",
]  # fmt: skip
