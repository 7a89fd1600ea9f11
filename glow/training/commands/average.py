"""`glow average`: one checkpoint from two."""

import json
import sys
from pathlib import Path

from glow.commands import command, option
from glow.options import StrictModel
from glow.training.average import average

__all__ = ["AverageOptions", "average_command"]


class AverageOptions(StrictModel):
    """Which checkpoints, and how much of each."""

    first: Path = option(..., "Checkpoint folder.", metavar="DIR")
    second: Path = option(..., "Checkpoint folder of the same towers.", metavar="DIR")
    out: Path = option(..., "Checkpoint folder to write.", metavar="DIR")
    query: float = option(0.5, "The second's share in the query tower.", ge=0.0, le=1.0)
    document: float = option(0.5, "The second's share in the document tower.", ge=0.0, le=1.0)


@command(AverageOptions)
def average_command(options: AverageOptions) -> None:
    """Averages the weights of two checkpoints, tower by tower."""
    report = average(options.first, options.second, options.query, options.document, options.out)
    sys.stdout.write(json.dumps({"averaged": report["averaged"]}, indent=2) + "\n")
