"""The options of the commands that change a live version: upsert, delete, compact."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import field_validator

from glow.artifact import WAIT_S, default_model
from glow.collection import MAX_DOCUMENT_BYTES
from glow.commands import IndexRootOptions, JsonOptions, all_cores, option
from glow_index_builder.options import rename_of

__all__ = ["ChangeOptions", "CompactOptions", "DeleteOptions", "UpsertOptions"]


class WaitOptions(JsonOptions, IndexRootOptions):
    """For commands that wait for their turn at an index root."""

    wait_s: float = option(
        WAIT_S, "Seconds to wait for another command on the index root.", flag="--wait", ge=0.0
    )


class ChangeOptions(WaitOptions):
    """What to change, and how much of it may be wrong or too much."""

    source: str = option(..., "FILE.jsonl, a directory, or - for standard input.", flag="--input")
    max_line_bytes: int = option(MAX_DOCUMENT_BYTES, "Longest line in bytes.", ge=1)
    max_reject_share: float = option(
        0.2,
        "Ratio of invalid lines above which the command fails.",
        ge=0.0,
        le=1.0,
        flag="--max-reject-ratio",
    )
    max_share: float = option(
        0.1, "Largest ratio of delta to base; applies from 1,000 changes.", flag="--max-delta-ratio", ge=0.0
    )
    max_documents: int = option(
        20_000, "Most documents and tombstones in a delta.", flag="--max-delta-documents", ge=1
    )


class UpsertOptions(ChangeOptions):
    """Documents to add or replace."""

    model: Path | None = option(
        None, "Model that built the index; default: the one that models/DEFAULT names.", metavar="DIR"
    )
    threads: int | None = option(None, "Threads of encoding; default: all cores.", ge=1)
    rename: Mapping[str, str] = option(
        {},
        "FOUND=WANTED renames a key of the input; default: as in the build.",
        flag="--rename-field",
        metavar="FOUND=WANTED",
    )

    _read_rename = field_validator("rename", mode="before")(rename_of)

    @property
    def thread_count(self) -> int:
        """Threads, >= 1."""
        return self.threads or all_cores()

    @property
    def model_folder(self) -> Path:
        """The model that encodes new documents.

        Raises:
            ArtifactNotFoundError: if none was given and there is no default one.
        """
        return self.model or default_model()


class DeleteOptions(ChangeOptions):
    """Documents to delete."""

    source: str = option(..., "File with one id per line, or - for standard input.", flag="--input")


class CompactOptions(WaitOptions):
    """What to compact and how."""

    threads: int | None = option(None, "Threads of FAISS; default: all cores.", ge=1)

    @property
    def thread_count(self) -> int:
        """Threads, >= 1."""
        return self.threads or all_cores()
