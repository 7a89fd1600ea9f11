"""What a stopped run needs to go on as if it had not stopped: weights, optimizer moments, the step.

Kept as safetensors and JSON (no pickle), written to a temporary name and renamed.
"""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from glow.errors import MismatchError
from glow.training.run.progress import Position

__all__ = ["STATE_FILE", "load_state", "save_state"]

STATE_FILE = "state.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def save_state(
    folder: Path, model: nn.Module, optimizer: torch.optim.AdamW, position: Position, fingerprint: str
) -> None:
    """Writes the state at `position`; `fingerprint` names all that decides the run."""
    tensors = {f"model.{name}": tensor.contiguous() for name, tensor in _parameters(model).items()}
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in _parameters(model).items()}
    for parameter, moments in optimizer.state.items():
        for kind in _MOMENTS:
            tensors[f"{kind}.{names[parameter]}"] = moments[kind].contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{STATE_FILE}"
    # Parameters that both towers share appear once in `named_parameters`, as safetensors wants it.
    run = {"position": asdict(position), "fingerprint": fingerprint}
    save_file(tensors, temporary, metadata={"run": json.dumps(run)})
    temporary.replace(folder / STATE_FILE)


def load_state(folder: Path, model: nn.Module, optimizer: torch.optim.AdamW, fingerprint: str) -> Position:
    """Puts a saved state back; returns its position, the start where there is none.

    Raises:
        MismatchError: if the state is of a run with another configuration, other data or other weights at its start, or
            an older version kept it.
    """
    path = folder / STATE_FILE
    if not path.exists():
        return Position()
    with safe_open(path, framework="pt") as file:
        run = json.loads(file.metadata()["run"])
        if run["fingerprint"] != fingerprint or "position" not in run:
            raise MismatchError(
                f"{path} belongs to a run with other configuration or data (texts, judgements, negatives, initial or "
                f"teacher weights), or to an older version; remove {folder} or choose another --out"
            )
        keys = set(file.keys())
        for name, parameter in _parameters(model).items():
            with torch.no_grad():
                parameter.copy_(file.get_tensor(f"model.{name}"))
            if f"step.{name}" in keys:
                moments = {kind: file.get_tensor(f"{kind}.{name}") for kind in _MOMENTS}
                optimizer.state[parameter] = {kind: m.to(parameter.device) for kind, m in moments.items()}
    return Position(**run["position"])


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
