"""The commands of training."""

from glow.training.commands.data import mine_command, synthesise_command

__all__ = [
    "mine_command",
    "synthesise_command",
]
