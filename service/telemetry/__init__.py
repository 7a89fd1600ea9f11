"""Metrics, traces, log lines, the query log and the feedback log."""

from glow_service.telemetry.cache_events import EVENTS, KINDS, Kind, RedisBudget, TierEvents
from glow_service.telemetry.exposition import FOLDER_VARIABLE, metrics_folder
from glow_service.telemetry.feedback_log import FeedbackLog, feedback_key
from glow_service.telemetry.logs import LogForm, configure_logging
from glow_service.telemetry.loop_lag import LoopLag
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import QueryLog
from glow_service.telemetry.tracing import FinishedRequest, Tracer

__all__ = [
    "EVENTS", "FOLDER_VARIABLE", "KINDS", "FeedbackLog", "FinishedRequest", "Kind", "LogForm", "LoopLag", "Metrics", "QueryLog",
    "RedisBudget", "TierEvents", "Tracer", "configure_logging", "feedback_key", "metrics_folder",
]  # fmt: skip
