"""The parts of every training run: a recipe, the training loop, its state, and the resulting checkpoint."""

from glow.training.run.checkpoint import (
    CHECKPOINT_FILE,
    REPORT_FILE,
    WEIGHTS_FILE,
    CheckpointKind,
    Opened,
    kind_of,
    known_report,
    load_weights,
    open_checkpoint,
    write_checkpoint,
)
from glow.training.run.folder import METRICS_FILE, RunFolder, read_metrics
from glow.training.run.hashes import parameters_hash, parts_hash
from glow.training.run.loop import Place, Tell, describe_run, run
from glow.training.run.optimizer import Adam, Group, floored, learning_rate, linear
from glow.training.run.options import OptimizerOptions, RunConfig, WatchConfig
from glow.training.run.processes import Processes, TrainingDevice, autocast, check_single_process
from glow.training.run.progress import Position, Progress
from glow.training.run.recipe import Data, Keep, Loss, Measures, Moment, Recipe
from glow.training.run.state import STATE_FILE, State

__all__ = [
    "CHECKPOINT_FILE", "METRICS_FILE", "REPORT_FILE", "STATE_FILE", "WEIGHTS_FILE", "Adam", "CheckpointKind", "Data", "Group", "Keep",
    "Loss", "Measures", "Moment", "Opened", "OptimizerOptions", "Place", "Position", "Processes", "Progress", "Recipe", "RunConfig",
    "RunFolder", "State", "Tell", "TrainingDevice", "WatchConfig", "autocast", "check_single_process", "describe_run", "floored", "kind_of",
    "known_report", "learning_rate", "linear", "load_weights", "open_checkpoint", "parameters_hash", "parts_hash", "read_metrics", "run", "write_checkpoint",
]  # fmt: skip
