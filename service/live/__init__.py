"""The live version: loading, warm-up, watching CURRENT, and hot swaps without losing a request."""

from glow_service.live.resources import OpenVersion, Resources
from glow_service.live.swap import Swap, Watcher
from glow_service.live.workers import (
    Readiness,
    WorkerGroup,
    end_with_parent,
    is_first_to_fail,
    note_loaded,
    was_loaded,
)

__all__ = [
    "OpenVersion", "Readiness", "Resources", "Swap", "Watcher", "WorkerGroup",
    "end_with_parent", "is_first_to_fail", "note_loaded", "was_loaded",
]  # fmt: skip
