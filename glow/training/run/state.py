"""The state that a stopped run needs to resume exactly: weights, buffers, moments, the loss scale and its position.

It is stored as safetensors and JSON (no pickle), written to a temporary name and renamed. A resumed run is bit for bit
equal on the same machine with the same number of threads and the same torch; differences cause a warning.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from glow.errors import IntegrityError, MismatchError
from glow.training.run.progress import Position

__all__ = ["STATE_FILE", "State", "changing_tensors"]

STATE_FILE = "state.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_LOG = logging.getLogger(__name__)


class State:
    """The state of a run.

    Args:
        folder: directory of the run.
        module: its objective with all trainable parameters.
        optimizer: its optimizer.
        fingerprint: hash of all inputs that decide the run.
        scaler: scaler of the loss; None: no scaling.

    Attributes:
        position: the position of the run.
    """

    def __init__(
        self,
        folder: Path,
        module: nn.Module,
        optimizer: torch.optim.AdamW,
        fingerprint: str,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self._path, self._module, self._optimizer = folder / STATE_FILE, module, optimizer
        self._fingerprint, self._scaler = fingerprint, scaler
        self.position = Position()

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
            "scale": self._scaler.state_dict() if self._scaler else None,
            "made_with": _made_with(),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{STATE_FILE}")
        save_file(tensors, temporary, metadata={"run": json.dumps(run)})
        temporary.replace(self._path)

    def load(self) -> None:
        """Restores a saved state; without one, the run is at its start.

        Raises:
            IntegrityError: if the file is damaged.
            MismatchError: if the state belongs to a run with another configuration, data or initial weights.
        """
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
            self._put_back(file, run)
        self.position = Position(**run["position"])

    def _put_back(self, file: Any, run: dict[str, Any]) -> None:
        keys = set(file.keys())
        for name, value in changing_tensors(self._module):
            with torch.no_grad():
                value.copy_(file.get_tensor(f"model.{name}"))
            if f"step.{name}" in keys:
                moments = {kind: file.get_tensor(f"{kind}.{name}") for kind in _MOMENTS}
                self._optimizer.state[value] = {kind: m.to(value.device) for kind, m in moments.items()}
        if self._scaler and run["scale"]:
            self._scaler.load_state_dict(run["scale"])


def changing_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a run changes: distinct trainable parameters, and buffers."""
    yield from ((name, each) for name, each in module.named_parameters() if each.requires_grad)
    kept = module.state_dict().keys()
    yield from ((name, each) for name, each in module.named_buffers() if name in kept)


def _made_with() -> dict[str, Any]:
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}
