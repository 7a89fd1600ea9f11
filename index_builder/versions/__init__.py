"""Operations on whole versions: judge, tune, derive and remove."""

from glow_index_builder.versions.gate import (
    GateLimits,
    GateOptions,
    judge,
    parse_gate,
    publish_judged,
)
from glow_index_builder.versions.gc import Collected, collect
from glow_index_builder.versions.tune import TuneOptions, tune_index
from glow_index_builder.versions.writer import VersionWriter, derive, describe_heir, disk_errors, link_files

__all__ = [
    "Collected", "GateLimits", "GateOptions", "TuneOptions", "VersionWriter",
    "collect", "derive", "describe_heir", "disk_errors",
    "judge", "link_files", "parse_gate", "publish_judged",
    "tune_index",
]  # fmt: skip
