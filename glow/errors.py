"""The one tree of exceptions that GLOW raises on purpose.

    GlowError
    ├── InputError                 what a person or a program gave us is not usable
    │   ├── RecordError            one line of a corpus, query or qrels file
    │   ├── QueryError             a query that cannot be searched
    │   │   └── FilterError        a filter or facet that does not fit the index
    │   └── ConfigError            settings, schema or training options
    ├── ArtifactError              a model, index or checkpoint folder
    │   ├── ArtifactNotFoundError  nothing where one was expected
    │   ├── FormatError            unreadable, or of a format version we do not know
    │   ├── IntegrityError         a file that differs from what the manifest recorded
    │   └── MismatchError          two artifacts that do not belong together
    ├── DocumentNotFoundError      no document of that id in the index
    ├── DeviceError                a device was asked for that is not there
    ├── DependencyError            an optional package is needed and not installed
    ├── BuildError                 a build that cannot give a correct artifact
    ├── GateError                  a version that is not good enough to be published
    ├── BusyError                  another process changes the same index root
    ├── ReadOnlyError              an index root cannot be written from here
    ├── DiskError                  a disk that is full or fails
    ├── StoreError                 a server that holds vectors does not answer
    └── ExportError                an exported model that is not equal to its checkpoint

Two rooms grow branches of their own: `service/errors.py` (what HTTP needs) and `glow/client/errors.py` (what a call of
the client can end in).

Messages say what was found, what was expected and what to do. `code` is stable: it is what HTTP clients
and exit reports see; `exit_code` is how a command ends. `docs/reference/errors.md` lists both of every one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class GlowError(Exception):
    """Base of every error that GLOW raises on purpose."""

    code = "internal"
    exit_code = 1


class InputError(GlowError):
    """What a person or a program gave us is not usable."""

    code = "invalid_input"
    exit_code = 2


class RecordError(InputError):
    """One line of a corpus, query or qrels file is not usable."""

    code = "invalid_record"


class QueryError(InputError):
    """A query cannot be searched."""

    code = "invalid_query"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with JSON that was given.

    Attributes:
        pointer: JSON pointer (RFC 6901) to the place.
        detail: what was found and what was expected.
    """

    pointer: str
    detail: str


class FilterError(QueryError):
    """A filter or facet is malformed, or does not fit the metadata of the index.

    Args:
        faults: at least one, with its place each.
    """

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
    """A model, index or checkpoint folder cannot be used."""

    code = "artifact_error"
    exit_code = 3


class ArtifactNotFoundError(ArtifactError):
    """There is no artifact where one was expected."""

    code = "artifact_not_found"


class FormatError(ArtifactError):
    """An artifact is unreadable or of a format version that we do not know."""

    code = "artifact_format"


class IntegrityError(ArtifactError):
    """A file differs from what its manifest recorded."""

    code = "artifact_damaged"


class MismatchError(ArtifactError):
    """Two artifacts do not belong together."""

    code = "artifact_mismatch"


class DocumentNotFoundError(GlowError):
    """The index holds no document of that id."""

    code = "document_not_found"
    exit_code = 2


class DeviceError(GlowError):
    """A device was asked for that is not there."""

    code = "device_unavailable"
    exit_code = 5


class DependencyError(GlowError):
    """An optional package is needed and not installed."""

    code = "dependency_missing"
    exit_code = 5


class BuildError(GlowError):
    """A build cannot give a correct artifact."""

    code = "build_failed"
    exit_code = 4


class GateError(GlowError):
    """A version, or an adapted model, is not good enough to be published.

    Args:
        message: which checks failed, and what to do.
        figures: what the gate found, as JSON values.
    """

    code = "gate_refused"
    exit_code = 6

    def __init__(self, message: str, figures: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.figures = dict(figures or {})


class BusyError(GlowError):
    """Another process is changing the same index root."""

    code = "index_busy"
    exit_code = 4


class ReadOnlyError(GlowError):
    """An index root cannot be written from here."""

    code = "index_read_only"
    exit_code = 4


class DiskError(GlowError):
    """A disk is full or fails; what was there before is untouched."""

    code = "disk_failed"
    exit_code = 4


class StoreError(GlowError):
    """A server that holds an index's vectors does not answer, or has not what it should hold.

    Args:
        message: what failed, and what to do.
        is_gone: whether it answers and has not the vectors: they were dropped, or it has not read yet what it holds.
    """

    code = "store_unavailable"
    exit_code = 4

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class ExportError(GlowError):
    """An exported model is not equal to its checkpoint."""

    code = "export_refused"
    exit_code = 4
