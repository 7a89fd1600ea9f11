"""ONNX Runtime sessions: on the requested device or an error, never a silent fall-back."""

import os
from pathlib import Path
from typing import Literal

# Read at import: telemetry must be off, so that no data about the use leaves the machine.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

from glow.errors import DeviceError, FormatError

__all__ = ["Device", "open_session"]

Device = Literal["cpu", "cuda"]
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def open_session(path: Path, device: Device = "cpu", threads: int = 1) -> onnxruntime.InferenceSession:
    """Opens a model on one device.

    Args:
        path: an ONNX file; its external data are beside it.
        device: `cpu` or `cuda`.
        threads: intra-op threads, >= 1; 1 suits a service whose requests run side by side.

    Raises:
        DeviceError: if the device's provider is missing, or ONNX Runtime chose another.
        FormatError: if this ONNX Runtime cannot read the file as a model.
    """
    provider = _PROVIDERS[device]
    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise DeviceError(
            f"device {device!r} needs {provider}; this onnxruntime offers {', '.join(available)}. "
            "Install the GPU packages (docs/install.md, GPU), or use --device cpu"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # The arena keeps the memory of the largest batch ever seen; length-sorted batches gain nothing from it.
    options.enable_cpu_mem_arena = False
    if device == "cuda":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        session = onnxruntime.InferenceSession(path, options, providers=[provider])
    except Exception as error:  # onnxruntime's own exception types are not public
        kind = DeviceError if device == "cuda" else FormatError
        raise kind(f"cannot open {path.name} on {device}: {error}") from error
    if session.get_providers()[0] != provider:
        raise DeviceError(f"asked for {provider}, ONNX Runtime chose {session.get_providers()[0]}")
    return session
