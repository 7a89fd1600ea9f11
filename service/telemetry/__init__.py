"""Metrics, traces, log lines, the query log and the feedback log."""

from glow_service.telemetry.logs import LogForm, configure_logging
from glow_service.telemetry.metrics import (
    EVENTS,
    FOLDER_VARIABLE,
    Kind,
    LoopLag,
    Metrics,
    TierEvents,
    metrics_folder,
)
from glow_service.telemetry.query_log import FeedbackLog, QueryLog, feedback_key
from glow_service.telemetry.tracing import Tracer

__all__ = [
    "EVENTS", "FOLDER_VARIABLE", "FeedbackLog", "Kind", "LogForm", "LoopLag", "Metrics", "QueryLog",
    "TierEvents", "Tracer", "configure_logging", "feedback_key", "metrics_folder",
]  # fmt: skip
