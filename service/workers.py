"""What the worker processes of one service share: the fate of their supervisor, and whether the index could be loaded."""

import ctypes
import os
import signal
import sys
from pathlib import Path

from service.exposition import FOLDER_VARIABLE

__all__ = ["end_with_parent", "note_loaded", "was_loaded"]

_PR_SET_PDEATHSIG = 1
_MARKER = "loaded"


def end_with_parent() -> None:
    """Makes this process end in order when its supervisor is killed, so that no worker keeps the port by itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def note_loaded() -> None:
    """Notes for workers that are started later that the index of this service can be loaded."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        Path(folder, _MARKER).touch()


def was_loaded() -> bool:
    """Whether a worker of this service has loaded the index before."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return bool(folder) and Path(str(folder), _MARKER).exists()
