"""Metrics, traces, log lines, the query log and the feedback log."""

from glow_service.telemetry.logs import LogForm, configure_logging
from glow_service.telemetry.metrics import (
    EVENTS,
    FOLDER_VARIABLE,
    Kind,
    Metrics,
    measure_loop_lag,
    metrics_folder,
    tier_events,
)
from glow_service.telemetry.query_log import FeedbackLog, QueryLog, feedback_key
from glow_service.telemetry.tracing import Tracer

__all__ = [
    "EVENTS", "FOLDER_VARIABLE", "FeedbackLog", "Kind", "LogForm", "Metrics", "QueryLog", "Tracer",
    "configure_logging", "feedback_key", "measure_loop_lag", "metrics_folder", "tier_events",
]  # fmt: skip
