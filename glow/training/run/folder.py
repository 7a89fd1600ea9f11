"""The directory of a run: its configuration, metrics as JSON Lines, the best weights so far."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from glow.errors import IntegrityError
from glow.training.run.options import RunConfig
from glow.training.run.progress import Progress
from glow.training.run.state import changing_tensors

__all__ = ["METRICS_FILE", "RunFolder", "read_metrics"]

CONFIG_FILE, METRICS_FILE, BEST_FILE = "config.json", "metrics.jsonl", "best.safetensors"


class RunFolder:
    """Writes the files of a run.

    Args:
        path: the directory.
        active: whether this process writes; only one of several does.
    """

    def __init__(self, path: Path, *, active: bool) -> None:
        self.path = path
        self._active = active

    def open(self, config: RunConfig, step: int) -> None:
        """Creates the directory, and drops metrics of steps that a resumed run repeats."""
        if not self._active:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        config.save(self.path / CONFIG_FILE)
        kept = [json.dumps(row) + "\n" for row in read_metrics(self.path) if row["step"] <= step]
        temporary = self.path / f".{METRICS_FILE}"
        temporary.write_text("".join(kept), encoding="utf-8")
        temporary.replace(self.path / METRICS_FILE)

    def record(self, progress: Progress, rate: float) -> None:
        """Appends a line with step, loss, learning rate, speed, and the figures of the step and the development set."""
        if not self._active:
            return
        row: dict[str, object] = {"step": progress.step, "loss": progress.last, "rate": rate}
        row |= {f"{progress.unit}_per_second": round(progress.speed, 1), **progress.figures}
        if progress.dev:
            row["dev"] = dict(progress.dev)
        with (self.path / METRICS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def keep_best(self, module: nn.Module) -> None:
        """Saves the present trainable parameters and buffers."""
        if self._active:
            temporary = self.path / f".{BEST_FILE}"
            save_file(
                {name: each.detach().contiguous() for name, each in changing_tensors(module)}, temporary
            )
            temporary.replace(self.path / BEST_FILE)

    def load_best(self, module: nn.Module) -> None:
        """Loads the best weights into a module.

        Raises:
            IntegrityError: if the file of the best weights is missing or damaged.
        """
        try:
            module.load_state_dict(load_file(self.path / BEST_FILE), strict=False)
        except (OSError, SafetensorError) as error:
            raise IntegrityError(
                f"{self.path / BEST_FILE} is damaged ({error}); remove {self.path}"
            ) from error


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics file; [] if there is none.

    An incomplete last line, of a process that was killed while it wrote, is left out.
    """
    path = folder / METRICS_FILE
    if not path.is_file():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]
