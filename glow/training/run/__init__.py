"""The parts of every training run: a recipe, the training loop, and its state."""

from glow.training.run.loop import (
    Place,
    Processes,
    Tell,
    TrainingDevice,
    autocast,
    check_single_process,
    describe_run,
    run,
)
from glow.training.run.recipe import (
    Adam,
    Data,
    Group,
    Keep,
    Loss,
    Measures,
    Moment,
    OptimizerOptions,
    Position,
    Precision,
    Progress,
    Recipe,
    RunConfig,
    WatchConfig,
    floored,
    learning_rate,
    linear,
    parameters_hash,
    parts_hash,
)
from glow.training.run.state import METRICS_FILE, STATE_FILE, RunFolder, State, read_metrics

__all__ = [
    "METRICS_FILE", "STATE_FILE", "Adam", "Data", "Group", "Keep", "Loss", "Measures", "Moment", "OptimizerOptions", "Place",
    "Position", "Precision", "Processes", "Progress", "Recipe", "RunConfig", "RunFolder", "State", "Tell", "TrainingDevice", "WatchConfig",
    "autocast", "check_single_process", "describe_run", "floored", "learning_rate", "linear", "parameters_hash", "parts_hash",
    "read_metrics", "run",
]  # fmt: skip
