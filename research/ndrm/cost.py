"""Time and memory of training the document encoder by document length, with separable and plain attention (Figure 1)."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glow.training.run import Moment, OptimizerOptions
from research.ndrm.conformer import ConformerConfig, ConformerEncoder
from research.steps import Draws, take_steps

__all__ = ["measure_cost"]

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
ROUNDS = 3


def measure_cost(lengths: tuple[int, ...] = LENGTHS) -> list[dict[str, Any]]:
    """Seconds and peak memory of a step over one document, each measured in a separate process."""
    rows = []
    for length in lengths:
        for attention in ("separable", "plain"):
            done = subprocess.run(
                [sys.executable, "-m", "research.ndrm.cost", attention, str(length)],
                capture_output=True,
                text=True,
                check=False,
            )
            rows.append(
                json.loads(done.stdout)
                if done.returncode == 0
                else {"attention": attention, "length": length, "failed": done.stderr[-200:]}
            )
    return rows


def _measure(attention: str, length: int) -> dict[str, Any]:
    config = ConformerConfig.model_validate({"attention": attention, "dropout": 0.0})
    encoder = ConformerEncoder(config, positions=max(LENGTHS))
    mask = torch.ones(1, length, dtype=torch.bool)
    marks: list[tuple[float, int]] = []  # the boundaries of each step

    def mark() -> None:
        marks.append((time.perf_counter(), _peak_bytes()))

    def draw(random: np.random.Generator) -> Tensor:
        mark()
        return torch.randn(1, length, config.hidden)

    def loss(document: Tensor, moment: Moment) -> Tensor:
        total: Tensor = encoder(document, mask).sum()
        return total

    options = OptimizerOptions(precision="fp32")
    take_steps(encoder, Draws(0, ROUNDS, draw), loss, options, tell=lambda progress: mark())
    seconds = [end - begin for (begin, _), (end, _) in zip(marks[::2], marks[1::2], strict=True)]
    return {
        "attention": attention,
        "length": length,
        "seconds": round(min(seconds), 4),
        "mib": round((marks[-1][1] - marks[0][1]) / 2**20, 1),
    }


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(sys.argv[1], int(sys.argv[2]))))
