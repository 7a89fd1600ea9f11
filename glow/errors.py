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


class InputError(GlowError):
    """The input is not valid."""

    code = "invalid_input"
    exit_code = 2


class RecordError(InputError):
    """A line of a corpus, query or qrels file is not valid."""

    code = "invalid_record"


class QueryError(InputError):
    """A query cannot be searched."""

    code = "invalid_query"


@dataclass(frozen=True, slots=True)
class Fault:
    """An invalid value in JSON."""

    pointer: str  # JSON pointer (RFC 6901) to the place
    detail: str  # what was found and what was expected


class FilterError(QueryError):
    """A filter or facet is invalid, or does not fit the index's metadata."""

    code = "invalid_filter"

    def __init__(self, faults: Sequence[Fault]) -> None:
        first, more = faults[0], len(faults) - 1
        rest = f" (and {more} more)" if more else ""
        super().__init__(f"{first.pointer}: {first.detail}{rest}")
        self.faults = tuple(faults)


class ConfigError(InputError):
    """Settings, a schema or training options are not valid."""

    code = "invalid_config"


class ArtifactError(GlowError):
    """A model, index or checkpoint cannot be used."""

    code = "artifact_error"
    exit_code = 3


class ArtifactNotFoundError(ArtifactError):
    """A model, index or checkpoint does not exist."""

    code = "artifact_not_found"


class FormatError(ArtifactError):
    """A model, index or checkpoint is unreadable, or has an unknown format version."""

    code = "artifact_format"


class IntegrityError(ArtifactError):
    """A file differs from its manifest."""

    code = "artifact_damaged"


class MismatchError(ArtifactError):
    """Two artifacts do not fit together, such as an index and another model."""

    code = "artifact_mismatch"


class DocumentNotFoundError(GlowError):
    """The index has no document with this id."""

    code = "document_not_found"
    exit_code = 2


class DeviceError(GlowError):
    """The requested device is not available."""

    code = "device_unavailable"
    exit_code = 5


class DependencyError(GlowError):
    """A required optional package is not installed."""

    code = "dependency_missing"
    exit_code = 5


class BuildError(GlowError):
    """A build failed."""

    code = "build_failed"
    exit_code = 4


class GateError(GlowError):
    """The gate refused to publish a version."""

    code = "gate_refused"
    exit_code = 6

    def __init__(self, message: str, figures: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.figures = dict(figures or {})  # what the gate found, as JSON values


class BusyError(GlowError):
    """Another process is changing the index root."""

    code = "index_busy"
    exit_code = 4


class ReadOnlyError(GlowError):
    """The process cannot write to the index root."""

    code = "index_read_only"
    exit_code = 4


class DiskError(GlowError):
    """A disk is full or fails. Existing files are unchanged."""

    code = "disk_failed"
    exit_code = 4


class StoreError(GlowError):
    """The vector store does not respond, or lacks the index's vectors.

    `is_gone`: it answers and has not the vectors, because they were dropped, or it has not read yet what it holds.
    """

    code = "store_unavailable"
    exit_code = 4

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class ExportError(GlowError):
    """An exported model differs from its checkpoint."""

    code = "export_refused"
    exit_code = 4
