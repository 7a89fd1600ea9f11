"""The options of `glow ingest`."""

from pathlib import Path

from glow.artifact import WAIT_S
from glow.commands import IndexRootOptions, all_cores, option
from glow.ingest import INGEST_FOLDER

__all__ = ["IngestOptions"]


class IngestOptions(IndexRootOptions):
    """Where writes lie, and how they are applied."""

    ingest_folder: Path | None = option(
        None, "Folder of the log of writes; default: .ingest in the index root.", metavar="DIR"
    )
    model: Path | None = option(
        None, "Model that built the index; default: what models/DEFAULT names.", metavar="DIR"
    )
    threads: int | None = option(None, "Threads that encode; default: all cores.", ge=1)
    every_s: float = option(
        1.0, "Seconds between looks for writes.", flag="--poll-interval-s", ge=0.05, le=3600.0
    )
    once: bool = option(False, "Apply what waits, and end.")
    check: bool = option(
        False, "Apply nothing: end with status 0 if another process applies the log, else with 1."
    )
    batch_documents: int = option(500, "Most documents that are applied as one version.", ge=1, le=20_000)
    compact_share: float = option(
        0.5,
        "Compact once the delta has this share of what it may have.",
        ge=0.01,
        le=1.0,
        flag="--compact-threshold",
    )
    keep: int = option(3, "Versions that stay, the live one among them; more are removed as they come.", ge=1)
    keep_deleted_days: float = option(
        7.0,
        "Days that the version before a deletion by filter stays restorable (0: none).",
        ge=0.0,
        le=3_650.0,
    )
    wait_s: float = option(WAIT_S, "Seconds to wait for another command on the root.", flag="--wait", ge=0.0)

    @property
    def folder(self) -> Path:
        """Of the log of writes."""
        return self.ingest_folder or self.index_root / INGEST_FOLDER

    @property
    def thread_count(self) -> int:
        """Threads, >= 1."""
        return self.threads or all_cores()
