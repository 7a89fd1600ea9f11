"""The commands of evaluation."""

from glow.evaluation.commands.compare import compare_command, failures_command
from glow.evaluation.commands.options import guard, guarded
from glow.evaluation.commands.run import run_command
from glow.evaluation.commands.runs import fuse_command, measure_command

__all__ = [
    "compare_command",
    "failures_command",
    "fuse_command",
    "guard",
    "guarded",
    "measure_command",
    "run_command",
]
