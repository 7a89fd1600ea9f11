"""The processes of a run (`accelerate launch` on GPUs, `torchrun` on a CPU), and the device of this one.

Each takes its own batches, and gradients are averaged, as the released code does with Horovod.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, broadcast_object_list
from torch import Tensor, nn

from glow.errors import ConfigError

__all__ = ["Processes", "TrainingDevice", "autocast", "check_single_process"]

TrainingDevice = Literal["auto", "cpu", "cuda"]
Value = TypeVar("Value")


def autocast(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """A context in which matrix products have the given precision."""
    kind = torch.float16 if precision == "fp16" else torch.bfloat16
    return lambda: torch.autocast(device.type, kind, enabled=precision != "fp32")


def check_single_process(what: str) -> None:
    """Raises ConfigError in a run of several processes, which would all write the same files."""
    if (count := int(os.environ.get("WORLD_SIZE") or 1)) > 1:
        raise ConfigError(
            f"{what} in one process, found WORLD_SIZE {count}; start `glow train` without torchrun or accelerate launch"
        )


class Processes:
    """A run's processes, seen from this one.

    Args:
        precision: `fp32`, `bf16` or `fp16`.
        device: `auto` takes a GPU if there is one.

    Attributes:
        device: device of this process.
        index, count: its number, and the number of processes.
        is_main: whether it is the process that writes.
        scaler: loss scaler for fp16; None in other precisions.

    Raises:
        ConfigError: if the device is missing or does not support the precision.
    """

    def __init__(self, precision: str, device: TrainingDevice) -> None:
        has_gpu = torch.cuda.is_available()
        if device == "cuda" and not has_gpu:
            raise ConfigError("--device cuda needs a GPU, and there is none; give --device cpu or auto")
        if precision == "fp16" and (device == "cpu" or not has_gpu):
            raise ConfigError("precision 'fp16' needs a GPU; on a CPU use 'bf16' or 'fp32'")
        # Only fp16 needs a loss scale; accelerate fixes one for the whole process.
        mixed = "fp16" if precision == "fp16" else None
        # Without a GPU accelerate needs cpu=True, or processes do not find each other.
        self._accelerator = Accelerator(mixed_precision=mixed, cpu=device == "cpu" or not has_gpu)
        self.device: torch.device = self._accelerator.device
        self.index: int = self._accelerator.process_index
        self.count: int = self._accelerator.num_processes
        self.is_main: bool = self._accelerator.is_main_process
        self.scaler: torch.amp.GradScaler | None = self._accelerator.scaler

    def prepare(self, optimizer: torch.optim.AdamW) -> torch.optim.Optimizer:
        """Prepares the optimizer, whose step then applies the loss scale."""
        prepared: torch.optim.Optimizer = self._accelerator.prepare(optimizer)
        return prepared

    def share(self, module: nn.Module) -> None:
        """Copies the first process's parameters, which may be random, to all."""
        for parameter in module.parameters():
            parameter.data = broadcast(parameter.data)

    def agree(self, make: Callable[[], Value]) -> Value:
        """Returns the first process's result in all processes."""
        shared = [make() if self.is_main else None]
        if self.count > 1:
            broadcast_object_list(shared)
        found: Value = shared[0]  # type: ignore[assignment]
        return found

    def backward(self, loss: Tensor) -> None:
        """Computes gradients of a loss, scaled if the precision requires it."""
        self._accelerator.backward(loss)

    def average(self, module: nn.Module) -> None:
        """Averages each parameter's gradient over all processes."""
        if self.count > 1:
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.grad = self._accelerator.reduce(parameter.grad, "mean")

    def clip(self, module: nn.Module, norm: float) -> None:
        """Limits the norm of all unscaled gradients."""
        self._accelerator.clip_grad_norm_(module.parameters(), norm)

    def wait(self) -> None:
        """Waits for all processes."""
        self._accelerator.wait_for_everyone()
