"""The files of a run: the state that resumes it exactly, its configuration, metrics and best weights.

A state is safetensors and JSON (no pickle), written to a temporary name and renamed. A resumed run is bit for bit equal on
the same machine with the same number of threads and the same torch; differences cause a warning.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glow.errors import IntegrityError, MismatchError
from glow.training.run.recipe import Position, Progress, RunConfig

STATE_FILE = "state.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_LOG = logging.getLogger(__name__)


class State:
    """The state of a run."""

    def __init__(
        self,
        folder: Path,
        module: nn.Module,
        optimizer: torch.optim.AdamW,
        fingerprint: str,
    ) -> None:
        self._path, self._module, self._optimizer = folder / STATE_FILE, module, optimizer
        self._fingerprint, self.position = fingerprint, Position()

    def save(self) -> None:
        """Writes the state atomically."""
        tensors = {
            f"model.{name}": value.detach().contiguous() for name, value in changing_tensors(self._module)
        }
        names = {parameter: name for name, parameter in changing_tensors(self._module)}
        for parameter, moments in self._optimizer.state.items():
            for kind in _MOMENTS:
                tensors[f"{kind}.{names[parameter]}"] = moments[kind].contiguous()
        run = {
            "position": asdict(self.position),
            "fingerprint": self._fingerprint,
            "made_with": _made_with(),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{STATE_FILE}")
        save_file(tensors, temporary, metadata={"run": json.dumps(run)})
        temporary.replace(self._path)

    def load(self) -> None:
        """Restores a saved state; without one, the run is at its start."""
        if not self._path.exists():
            return
        try:
            opened = safe_open(self._path, framework="pt")
        except SafetensorError as error:
            raise IntegrityError(f"{self._path} is damaged ({error}); remove {self._path.parent}") from error
        with opened as file:
            run = json.loads(file.metadata()["run"])
            if run["fingerprint"] != self._fingerprint:
                raise MismatchError(
                    f"{self._path} belongs to a run with other configuration or data (texts, qrels, negatives, initial "
                    f"or teacher weights); remove {self._path.parent} or choose another --out"
                )
            if run["made_with"] != _made_with():
                _LOG.warning(
                    "the state was saved with %s, this run has %s: the last digits will differ",
                    run["made_with"],
                    _made_with(),
                )
            self._put_back(file)
        self.position = Position(**run["position"])

    def _put_back(self, file: Any) -> None:
        keys = set(file.keys())
        for name, value in changing_tensors(self._module):
            with torch.no_grad():
                value.copy_(file.get_tensor(f"model.{name}"))
            if f"step.{name}" in keys:
                moments = {kind: file.get_tensor(f"{kind}.{name}") for kind in _MOMENTS}
                self._optimizer.state[value] = {kind: m.to(value.device) for kind, m in moments.items()}


def changing_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a run changes: distinct trainable parameters, and buffers."""
    yield from ((name, each) for name, each in module.named_parameters() if each.requires_grad)
    kept = module.state_dict().keys()
    yield from ((name, each) for name, each in module.named_buffers() if name in kept)


def _made_with() -> dict[str, Any]:
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}


CONFIG_FILE, METRICS_FILE, BEST_FILE = "config.json", "metrics.jsonl", "best.safetensors"


class RunFolder:
    """Writes the files of a run."""

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
        """Loads the best weights into a module."""
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
