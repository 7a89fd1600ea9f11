"""The folder of a run: its configuration, metrics as JSON lines, the best towers so far, and pictures."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from glow.nn import TwoTowers
from glow.training.config import TrainConfig
from glow.training.pictures import draw
from glow.training.run import Progress

__all__ = ["METRICS_FILE", "RunFolder", "read_metrics"]

CONFIG_FILE, METRICS_FILE, BEST_FILE = "config.json", "metrics.jsonl", "best.safetensors"


class RunFolder:
    """Writes what a run leaves behind.

    Args:
        path: the folder.
        active: whether this process writes; of several, one does.
    """

    def __init__(self, path: Path, *, active: bool) -> None:
        self.path = path
        self._active = active

    def open(self, config: TrainConfig, step: int) -> None:
        """Makes the folder and drops metrics of steps that a resumed run takes again."""
        if not self._active:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        config.save(self.path / CONFIG_FILE)
        kept = [json.dumps(row) + "\n" for row in read_metrics(self.path) if row["step"] <= step]
        temporary = self.path / f".{METRICS_FILE}"
        temporary.write_text("".join(kept), encoding="utf-8")
        temporary.replace(self.path / METRICS_FILE)

    def record(self, progress: Progress, loss: float, rate: float, figures: dict[str, float]) -> None:
        """Appends one line: step, loss, learning rate, speed, weighted cosines, dev RR@10 where it was measured."""
        if not self._active:
            return
        row: dict[str, object] = {"step": progress.step, "loss": loss, "rate": rate}
        row |= {"pairs_per_second": round(progress.pairs_per_second, 1), **figures}
        if progress.dev:
            row["dev"] = progress.dev
        with (self.path / METRICS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def keep_best(self, towers: TwoTowers) -> None:
        """Keeps the towers as they are now."""
        if self._active:
            temporary = self.path / f".{BEST_FILE}"
            save_file(_tensors(towers), temporary)
            temporary.replace(self.path / BEST_FILE)

    def finish(self, towers: TwoTowers | None) -> None:
        """Draws the pictures, and puts the best towers back into `towers`."""
        if towers is not None and (self.path / BEST_FILE).is_file():
            towers.load_state_dict(load_file(self.path / BEST_FILE), strict=False)
        if self._active:
            draw(read_metrics(self.path), self.path)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics file, [] where there is none.

    What follows the last newline is left out: a process was killed while it wrote.
    """
    path = folder / METRICS_FILE
    if not path.is_file():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]


def _tensors(towers: TwoTowers) -> dict[str, Tensor]:
    # Both towers hold the word table; `named_parameters` names it once.
    return {name: parameter.detach().contiguous() for name, parameter in towers.named_parameters()}
