"""Where a run computes, and in which precision."""

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Literal

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import nn

from glow.errors import ConfigError

__all__ = [
    "TrainingDevice", "autocast", "average_gradients", "check_precision", "check_single_process", "open_accelerator",
    "share_parameters",
]  # fmt: skip

TrainingDevice = Literal["auto", "cpu", "cuda"]


def autocast(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """Contexts in which matrix products have the given precision."""
    kind = torch.float16 if precision == "fp16" else torch.bfloat16
    return lambda: torch.autocast(device.type, kind, enabled=precision != "fp32")


def open_accelerator(precision: str, device: TrainingDevice) -> Accelerator:
    """The processes of a run, and this one's device.

    Raises:
        ConfigError: if the device is not there, or cannot compute in that precision.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("no GPU is there for --device cuda; give --device cpu or auto")
    # Of the precisions fp16 alone needs help, a loss scale; accelerate fixes one for the whole process.
    fp16 = precision == "fp16" and torch.cuda.is_available()
    # Without a GPU accelerate must be told of the CPU, or processes do not find each other.
    on_cpu = device == "cpu" or not torch.cuda.is_available()
    accelerator = Accelerator(mixed_precision="fp16" if fp16 else None, cpu=on_cpu)
    check_precision(precision, accelerator.device)
    return accelerator


def check_precision(precision: str, device: torch.device) -> None:
    """Raises ConfigError if the device cannot compute in that precision."""
    if precision == "fp16" and device.type != "cuda":
        raise ConfigError("precision 'fp16' needs a GPU; on a CPU use 'bf16' or 'fp32'")


def check_single_process(what: str) -> None:
    """Raises ConfigError if this is one of several processes, which would all write the same files."""
    if (count := int(os.environ.get("WORLD_SIZE") or 1)) > 1:
        raise ConfigError(
            f"{what} in one process, found WORLD_SIZE {count}; start `glow train` without torchrun or accelerate launch"
        )


def share_parameters(model: nn.Module) -> None:
    """Every process starts from the first one's parameters, which may be drawn at random."""
    for parameter in model.parameters():
        parameter.data = broadcast(parameter.data)


def average_gradients(accelerator: Accelerator, parameters: Iterable[nn.Parameter]) -> None:
    """Every process's gradients become the mean of all."""
    if accelerator.num_processes == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = accelerator.reduce(parameter.grad, "mean")
