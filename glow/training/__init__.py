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
from glow.training.encode import EncodeOptions, vectors
from glow.training.from_model import read_towers
from glow.training.impacts import IMPACTS_FILE, TrainedImpacts, load_impacts
from glow.training.job import TrainInputs, initial_towers, train
from glow.training.loop import Trainer
from glow.training.pretraining import (
    PretrainConfig,
    PretrainInputs,
    PretrainProgress,
    load_pretrained,
    pretrain,
    return_to_tower,
)
from glow.training.rerank import CROSS_FILE, load_reranker
from glow.training.run import Progress, TrainingDevice
from glow.training.synthesis import SynthesisOptions, synthesise
from glow.training.watch import Watch

__all__ = [
    "CROSS_FILE", "IMPACTS_FILE", "REPORT_FILE", "TOWERS_FILE", "Collection", "EncodeOptions", "OptimizerConfig",
    "PairBatches", "PretrainConfig", "PretrainInputs", "PretrainProgress", "Progress", "SynthesisOptions",
    "TrainConfig", "TrainInputs", "TrainedImpacts", "Trainer", "TrainingDevice", "Watch", "WatchConfig",
    "count_terms", "initial_towers", "load_checkpoint", "load_impacts", "load_pretrained", "load_reranker",
    "pretrain", "read_collection", "read_towers", "return_to_tower", "save_checkpoint", "save_preprocessing",
    "synthesise", "train", "vectors",
]  # fmt: skip
