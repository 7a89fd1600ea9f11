"""Hashes of the inputs that decide a run."""

import hashlib
import json
from collections.abc import Sequence

from torch import nn

__all__ = ["parameters_hash", "parts_hash"]


def parts_hash(parts: Sequence[str]) -> str:
    """SHA-256 of texts in their order, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def parameters_hash(module: nn.Module) -> str:
    """SHA-256 over names and values of a module's parameters, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, parameter in module.named_parameters():
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
