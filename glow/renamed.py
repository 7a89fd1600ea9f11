"""Deprecated names, which still work until 0.3: the only table of them."""

from collections.abc import Mapping

from pydantic import BeforeValidator

__all__ = [
    "RENAMED_COMMANDS", "RENAMED_FLAGS", "RENAMED_METHODS", "RENAMED_RETRIEVERS", "RENAMED_SETTINGS", "RENAMED_VALUES",
    "todays",
]  # fmt: skip

RENAMED_COMMANDS = {"learn": "learn-clicks", "synthesise": "synthesize"}
RENAMED_SETTINGS = {
    "query_log_share": "query_log_sample_rate",
    "otel_share": "otel_sample_rate",
    "shadow_share": "shadow_sample_rate",
    "watch_s": "poll_interval_s",
    "store_token": "vector_store_token",
    "store_timeout_ms": "vector_store_timeout_ms",
}
"""Settings and their environment variables (`GLOW_QUERY_LOG_SHARE`)."""

RENAMED_FLAGS = {
    "--output": "--index-root",
    "--map": "--rename-field",
    "--shard-documents": "--encode-batch-documents",
    "--max-reject-share": "--max-reject-ratio",
    "--max-delta-share": "--max-delta-ratio",
    "--compact-share": "--compact-threshold",
    "--learned-budget": "--expansion-terms",
    "--learned-words": "--expansion-vocabulary",
    "--every": "--poll-interval-s",
    "--watch-s": "--poll-interval-s",
    "--least-users": "--min-users",
    "--least-rate": "--min-ctr",
    "--least-share": "--min-relative-ctr",
    "--least-dwell": "--min-dwell-s",
    "--most-rank": "--max-rank",
    "--most-clicks": "--max-clicks-per-day",
    "--most-clicks-in-all": "--max-clicks-total",
    "--query-log-share": "--query-log-sample-rate",
    "--otel-share": "--otel-sample-rate",
    "--shadow-share": "--shadow-sample-rate",
    "--impacts": "--postings",
    "--from": "--min-rank",
    "--to": "--max-rank",
    "--synthesise": "--synthesize",
    "--share": "--rerank-weight",
    "--learned": "--learned-sparse",
}
"""Deprecated flag -> current flag, in every command that has the second and not the first."""

RENAMED_RETRIEVERS = {"learned": "learned-sparse"}
RENAMED_METHODS = {"join": "cross-encoder", "late": "late-interaction"}
"""Methods of re-ranking; older models and indexes contain the old names, too."""
RENAMED_VALUES: dict[str, Mapping[str, str]] = {
    "--postings": {"packed": "compressed"},
    "--retriever": RENAMED_RETRIEVERS,
    "--rerank-method": RENAMED_METHODS,
}
"""Flag -> deprecated values and their current names."""


def todays(names: Mapping[str, str]) -> BeforeValidator:
    """Returns a validator that replaces a deprecated name by the current one."""
    return BeforeValidator(lambda value: names.get(value, value) if isinstance(value, str) else value)
