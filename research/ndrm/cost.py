"""Time and memory of the document encoder against a document's length, with separable and with plain attention (the paper's Figure 1)."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from glow.nn import ConformerConfig, ConformerEncoder

__all__ = ["measure_cost"]

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
DOCUMENTS, ROUNDS = 1, 3


def measure_cost(lengths: tuple[int, ...] = LENGTHS) -> list[dict[str, Any]]:
    """Seconds and peak memory of one pass forward and back over a document, each measured in a process of its own."""
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
    mask = torch.ones(DOCUMENTS, length, dtype=torch.bool)
    before, seconds = _peak_bytes(), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        encoder(torch.randn(DOCUMENTS, length, config.hidden), mask).sum().backward()
        seconds.append(time.perf_counter() - start)
    return {
        "attention": attention,
        "length": length,
        "seconds": round(min(seconds) / DOCUMENTS, 4),
        "mib": round((_peak_bytes() - before) / DOCUMENTS / 2**20, 1),
    }


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(sys.argv[1], int(sys.argv[2]))))
