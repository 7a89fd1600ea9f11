"""The live version: loading, warm-up, watching CURRENT, and hot swaps without losing a request."""

from glow_service.live.readiness import Readiness
from glow_service.live.resources import OpenVersion, Resources
from glow_service.live.swap import Swap
from glow_service.live.watcher import Watcher
from glow_service.live.workers import WorkerGroup, end_with_parent, is_first_to_fail, note_loaded, was_loaded

__all__ = [
    "OpenVersion", "Readiness", "Resources", "Swap", "Watcher", "WorkerGroup",
    "end_with_parent", "is_first_to_fail", "note_loaded", "was_loaded",
]  # fmt: skip
