"""The folder of a run: its configuration, metrics as JSON lines, the best weights so far, and pictures."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from glow.errors import IntegrityError
from glow.training.run.options import RunConfig
from glow.training.run.pictures import draw
from glow.training.run.progress import Progress
from glow.training.run.state import changing_tensors

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

    def open(self, config: RunConfig, step: int) -> None:
        """Makes the folder and drops metrics of steps that a resumed run takes again."""
        if not self._active:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        config.save(self.path / CONFIG_FILE)
        kept = [json.dumps(row) + "\n" for row in read_metrics(self.path) if row["step"] <= step]
        temporary = self.path / f".{METRICS_FILE}"
        temporary.write_text("".join(kept), encoding="utf-8")
        temporary.replace(self.path / METRICS_FILE)

    def record(self, progress: Progress, rate: float) -> None:
        """Appends one line: step, loss, learning rate, speed, the step's figures, and those of the development set."""
        if not self._active:
            return
        row: dict[str, object] = {"step": progress.step, "loss": progress.last, "rate": rate}
        row |= {f"{progress.unit}_per_second": round(progress.speed, 1), **progress.figures}
        if progress.dev:
            row["dev"] = dict(progress.dev)
        with (self.path / METRICS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def keep_best(self, module: nn.Module) -> None:
        """Keeps what learns, and buffers, as they are now."""
        if self._active:
            temporary = self.path / f".{BEST_FILE}"
            save_file(
                {name: each.detach().contiguous() for name, each in changing_tensors(module)}, temporary
            )
            temporary.replace(self.path / BEST_FILE)

    def finish(self, module: nn.Module | None) -> None:
        """Draws the metrics, and puts the best weights back into a module.

        Raises:
            IntegrityError: if the file of the best weights is gone or damaged.
        """
        if module is not None:
            try:
                module.load_state_dict(load_file(self.path / BEST_FILE), strict=False)
            except (OSError, SafetensorError) as error:
                raise IntegrityError(
                    f"{self.path / BEST_FILE} is damaged ({error}); remove {self.path}"
                ) from error
        if self._active:
            draw(read_metrics(self.path), self.path)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics file, [] if there is none.

    What follows the last newline is left out: a process was killed while it wrote.
    """
    path = folder / METRICS_FILE
    if not path.is_file():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]
