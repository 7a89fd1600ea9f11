"""The events of the metric `glow_cache_events_total{tier, kind, event}`, and the time that a search may spend on Redis."""

from collections.abc import Callable
from typing import Literal, get_args

from glow_service.telemetry.metrics import Metrics

__all__ = ["EVENTS", "KINDS", "Kind", "RedisBudget", "Tier", "TierEvents"]

Kind = Literal["vector", "response"]
Tier = Literal["local", "redis"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# docs/performance.md#cache-responses-in-memory explains them.
EVENTS: dict[Tier, tuple[str, ...]] = {
    "local": ("hit", "miss", "store", "evict", "skipped"),
    "redis": ("hit", "miss", "poisoned", "store", "error", "timeout", "skipped", "dropped"),
}


class TierEvents:
    """Counts the events of one tier and kind.

    Each counter is looked up once, because `labels()` costs more than counting.

    Args:
        metrics: the service's metrics.
        tier: `local` or `redis`.
        kind: `vector` or `response`.
    """

    def __init__(self, metrics: Metrics, tier: Tier, kind: Kind) -> None:
        self._counters: dict[str, Callable[[], None]] = {
            event: metrics.cache_events.labels(tier, kind, event).inc for event in EVENTS[tier]
        }

    def count(self, event: str) -> None:
        """Counts one event of `EVENTS[tier]`."""
        self._counters[event]()


class RedisBudget:
    """Remaining time that one search may spend on Redis.

    Attributes:
        left_s: remaining seconds.
    """

    __slots__ = ("left_s",)

    def __init__(self, left_s: float) -> None:
        self.left_s = left_s
