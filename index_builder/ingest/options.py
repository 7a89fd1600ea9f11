"""The options of `glow ingest`."""

from pathlib import Path

from glow.artifact import WAIT_S
from glow.commands import IndexRootOptions, all_cores, option
from glow.ingest import INGEST_FOLDER

__all__ = ["IngestOptions"]


class IngestOptions(IndexRootOptions):
    """Where writes are stored, and how to apply them."""

    ingest_folder: Path | None = option(
        None, "Directory of the write log; default: .ingest in the index root.", metavar="DIR"
    )
    model: Path | None = option(
        None, "Model that built the index; default: the one that models/DEFAULT names.", metavar="DIR"
    )
    threads: int | None = option(None, "Threads of encoding; default: all cores.", ge=1)
    every_s: float = option(
        1.0, "Seconds between checks for writes.", flag="--poll-interval-s", ge=0.05, le=3600.0
    )
    once: bool = option(False, "Apply waiting writes, then exit.")
    check: bool = option(
        False, "Apply nothing: exit with status 0 if another process applies the log, otherwise with 1."
    )
    batch_documents: int = option(500, "Most documents per version.", ge=1, le=20_000)
    compact_share: float = option(
        0.5,
        "Ratio of the largest delta at which compaction starts.",
        ge=0.01,
        le=1.0,
        flag="--compact-threshold",
    )
    keep: int = option(3, "Number of versions to keep, with the live one.", ge=1)
    keep_deleted_days: float = option(
        7.0,
        "Days to keep the version before a deletion by filter; 0: none.",
        ge=0.0,
        le=3_650.0,
    )
    wait_s: float = option(
        WAIT_S, "Seconds to wait for another command on the index root.", flag="--wait", ge=0.0
    )

    @property
    def folder(self) -> Path:
        """Directory of the write log."""
        return self.ingest_folder or self.index_root / INGEST_FOLDER

    @property
    def thread_count(self) -> int:
        """Threads, >= 1."""
        return self.threads or all_cores()
