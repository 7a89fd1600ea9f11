"""What every run of training needs: a device, a course of the rate, how far it is, and a state to go on from."""

from glow.training.run.device import (
    TrainingDevice,
    autocast,
    average_gradients,
    check_precision,
    check_single_process,
    open_accelerator,
    share_parameters,
)
from glow.training.run.progress import Position, Progress
from glow.training.run.schedule import learning_rate
from glow.training.run.state import STATE_FILE, load_state, save_state

__all__ = [
    "STATE_FILE", "Position", "Progress", "TrainingDevice", "autocast", "average_gradients", "check_precision",
    "check_single_process", "learning_rate", "load_state", "open_accelerator", "save_state", "share_parameters",
]  # fmt: skip
