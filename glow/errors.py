"""All exceptions that GLOW raises on purpose, as one tree.

Two packages have branches of their own: `service/errors.py` (HTTP) and `glow/client/errors.py` (the client).

Messages say what was found, what was expected and what to do. `code` is stable: HTTP clients
and exit reports see it. `exit_code` is a command's exit status. `docs/reference/errors.md` lists both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class GlowError(Exception):
    """Base of all GLOW errors; in a response, an unexpected error."""

    code = "internal"
    exit_code = 1

    def __init_subclass__(cls, code: str = "", exit_code: int = 0) -> None:
        if code:
            cls.code = code
        if exit_code:
            cls.exit_code = exit_code


class InputError(GlowError, code="invalid_input", exit_code=2):
    """The input is not valid."""


class RecordError(InputError, code="invalid_record"):
    """A line of a corpus, query or qrels file is not valid."""


class QueryError(InputError, code="invalid_query"):
    """A query cannot be searched."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An invalid value in JSON."""

    pointer: str  # JSON pointer (RFC 6901) to the place
    detail: str  # what was found and what was expected


class FilterError(QueryError, code="invalid_filter"):
    """A filter or facet is invalid, or does not fit the index's metadata."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        first, more = faults[0], len(faults) - 1
        rest = f" (and {more} more)" if more else ""
        super().__init__(f"{first.pointer}: {first.detail}{rest}")
        self.faults = tuple(faults)


class ConfigError(InputError, code="invalid_config"):
    """Settings, a schema or training options are not valid."""


class ArtifactError(GlowError, code="artifact_error", exit_code=3):
    """A model, index or checkpoint cannot be used."""


class ArtifactNotFoundError(ArtifactError, code="artifact_not_found"):
    """A model, index or checkpoint does not exist."""


class FormatError(ArtifactError, code="artifact_format"):
    """A model, index or checkpoint is unreadable, or has an unknown format version."""


class IntegrityError(ArtifactError, code="artifact_damaged"):
    """A file differs from its manifest."""


class MismatchError(ArtifactError, code="artifact_mismatch"):
    """Two artifacts do not fit together, such as an index and another model."""


class DocumentNotFoundError(GlowError, code="document_not_found", exit_code=2):
    """The index has no document with this id."""


class DeviceError(GlowError, code="device_unavailable", exit_code=5):
    """The requested device is not available."""


class DependencyError(GlowError, code="dependency_missing", exit_code=5):
    """A required optional package is not installed."""


class BuildError(GlowError, code="build_failed", exit_code=4):
    """A build failed."""


class GateError(GlowError, code="gate_refused", exit_code=6):
    """The gate refused to publish a version."""

    def __init__(self, message: str, figures: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.figures = dict(figures or {})  # what the gate found, as JSON values


class BusyError(GlowError, code="index_busy", exit_code=4):
    """Another process is changing the index root."""


class ReadOnlyError(GlowError, code="index_read_only", exit_code=4):
    """The process cannot write to the index root."""


class DiskError(GlowError, code="disk_failed", exit_code=4):
    """A disk is full or fails. Existing files are unchanged."""


class StoreError(GlowError, code="store_unavailable", exit_code=4):
    """The vector store does not respond, or lacks the index's vectors.

    `is_gone`: it answers and has not the vectors, because they were dropped, or it has not read yet what it holds.
    """

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class ExportError(GlowError, code="export_refused", exit_code=4):
    """An exported model differs from its checkpoint."""
