"""Operations on whole versions: compare, judge, derive, export and remove."""

from glow_index_builder.versions.diff import Diff, diff_versions, sampled_queries
from glow_index_builder.versions.gate import judge, publish_gated, publish_judged
from glow_index_builder.versions.gate_options import MOST_QUERIES, GateLimits, GateOptions, parse_gate
from glow_index_builder.versions.gc import Collected, collect
from glow_index_builder.versions.listing import list_versions, newest, table
from glow_index_builder.versions.snapshot import export_version, import_version
from glow_index_builder.versions.tune import TuneOptions, tune_index
from glow_index_builder.versions.writer import VersionWriter, derive, describe_heir, disk_errors, link_files

__all__ = [
    "MOST_QUERIES", "Collected", "Diff", "GateLimits", "GateOptions", "TuneOptions", "VersionWriter",
    "collect", "derive", "describe_heir", "diff_versions", "disk_errors", "export_version", "import_version",
    "judge", "link_files", "list_versions", "newest", "parse_gate", "publish_gated", "publish_judged",
    "sampled_queries", "table", "tune_index",
]  # fmt: skip
