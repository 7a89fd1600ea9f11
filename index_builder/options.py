"""The options of a build, checked together before any work; flags and their documentation are generated from them."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from pydantic import field_validator, model_validator

from glow.artifact import WAIT_S, find_model
from glow.collection import MAX_DOCUMENT_BYTES, RecordKeys
from glow.commands import IndexRootOptions, JsonOptions, all_cores, option, rows_of
from glow.errors import ConfigError, DependencyError
from glow.index import COMPONENTS
from glow.options import StrictModel
from glow.runtime import Device
from glow.text import TermStats
from glow_index_builder.input.formats import check_encoding
from glow_index_builder.input.tables import FIELD_TYPES, TextFormat
from glow_index_builder.versions.gate import GateLimits

_MAKES_NO_DIFFERENCE = {"publish", "workers", "runner", "ray_address", "resume", "gate"}
"""Options that do not change the result. Manifest and report omit them, and directories, whose content has a hash."""


class WaitOptions(IndexRootOptions):
    """For commands that wait for their turn at an index root."""

    wait_s: float = option(
        WAIT_S, "Seconds to wait for another command on the index root.", flag="--wait", ge=0.0
    )


class ModelOptions(StrictModel):
    """The model that encodes documents."""

    model: Path | None = option(
        None, "Model, by name (glow-base) or directory; default: glow-mini.", metavar="DIR"
    )

    @property
    def model_folder(self) -> Path:
        """Directory of the model."""
        return find_model(self.model)


class ThreadOptions(StrictModel):
    """How many cores a command may use."""

    threads: int | None = option(None, "Threads that encode or index; default: all cores.", ge=1)

    @property
    def thread_count(self) -> int:
        """Threads, >= 1."""
        return self.threads or all_cores()


class LineOptions(StrictModel):
    """Which lines of input are invalid, and how many may be."""

    max_line_bytes: int = option(MAX_DOCUMENT_BYTES, "Longest line in bytes.", ge=1)
    max_reject_share: float = option(
        0.2,
        "Ratio of invalid lines above which the command fails.",
        ge=0.0,
        le=1.0,
        flag="--max-reject-ratio",
    )


class InputOptions(StrictModel):
    """How records become documents; an upsert takes what it does not name from the index."""

    rename: Mapping[str, str] = option(
        {},
        "FOUND=WANTED renames a key of the input; repeatable.",
        flag="--rename-field",
        metavar="FOUND=WANTED",
    )
    id_field: str | None = option(None, "Key that holds the id; default: _id, else id.", metavar="KEY")
    generate_ids: bool = option(False, "Records without id take a hash of their content.")
    delimiter: str = option("", "Delimiter of tables; default: by the first row.", metavar="CHARACTER")
    encoding: str = option("", "Encoding of CSV and JSON Lines; default: UTF-8, or UTF-16 by its mark.")
    field_types: Mapping[str, str] = option(
        {},
        f"Type of a column of CSV ({', '.join(FIELD_TYPES)}); default: by its values; repeatable.",
        flag="--field-type",
        metavar="NAME=TYPE",
    )

    @field_validator("rename", mode="before")
    @classmethod
    def _read_rename(cls, value: Any) -> Any:
        """Pairs from a shell, a mapping from Python."""
        if not isinstance(value, list | tuple):
            return value
        rename: dict[str, str] = {}
        for pair in value:
            key, sign, target = pair.partition("=")
            if not (key and sign and target):
                raise ConfigError(
                    f"--rename-field takes FOUND=WANTED, for example headline=title; found {pair!r}"
                )
            if key in rename or target in rename.values():
                raise ConfigError(f"--rename-field {pair}: {key!r} or {target!r} is mapped twice")
            rename[key] = target
        return rename

    @field_validator("field_types", mode="before")
    @classmethod
    def _read_field_types(cls, value: Any) -> Any:
        """Pairs from a shell, a mapping from Python."""
        if not isinstance(value, list | tuple):
            return value
        types = {}
        for pair in value:
            name, _, kind = pair.rpartition("=")
            if not name or kind not in FIELD_TYPES:
                raise ConfigError(
                    f"--field-type takes NAME={'|'.join(FIELD_TYPES)}, for example price=number; found {pair!r}"
                )
            types[name] = kind
        return types

    @field_validator("delimiter")
    @classmethod
    def _read_delimiter(cls, value: str) -> str:
        value = {"tab": "\t", "\\t": "\t"}.get(value, value)
        if len(value) > 1 or value in ('"', "\r", "\n"):
            raise ConfigError(f"--delimiter {value!r}: expected one character, or tab")
        return value

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str) -> str:
        return check_encoding(value) if value else value

    @property
    def text(self) -> TextFormat:
        """How files of text are read."""
        return TextFormat(self.delimiter, self.encoding, self.field_types)

    def texts(self, field_names: Sequence[str]) -> set[str]:
        """Columns that stay strings: text fields and ids."""
        texts = {"_id", *field_names}
        return texts | {"id", self.id_field or ""} | {key for key in self.rename if self.rename[key] in texts}

    @property
    def keys(self) -> RecordKeys:
        """How the keys of a record are read."""
        return RecordKeys(self.rename, self.id_field, self.generate_ids)

    def after(self, recorded: Mapping[str, Any]) -> Self:
        """These options, and for each that is not given what an index's manifest records."""
        # A flag that is not given has its default. A file's delimiter and encoding are its own.
        chosen = self.model_dump(exclude_defaults=True).keys()
        names = {"rename", "id_field", "generate_ids"} & recorded.keys() - chosen
        types = {**recorded.get("field_types", {}), **self.field_types}
        return self.model_copy(update={"field_types": types, **{name: recorded[name] for name in names}})


class FileOptions(StrictModel):
    """Which files are read, and where they can be opened."""

    exclude: tuple[str, ...] = option(
        (), "Leaves out files and folders of these names or paths; repeatable.", metavar="GLOB"
    )
    base_url: str = option("", "Comes before the path of each file in its url.", metavar="URL")

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        source, root = (getattr(self, name, None) for name in ("source", "index_root"))
        if source and root and Path(source).resolve() == Path(root).resolve():
            raise ConfigError(f"--input and --index-root are one directory, {root}; choose another root")
        return self


class CommonOptions(
    ModelOptions,
    IndexRootOptions,
    FileOptions,
    InputOptions,
    LineOptions,
    ThreadOptions,
    GateLimits,
    JsonOptions,
):
    """What to build and how, without the options of components."""

    source: str = option(..., "File, directory, or - for standard input.", flag="--input")
    publish: bool = option(True, "Make the new version live.")
    device: Device = option("cpu", "Device that encodes; for cuda, auto chooses a flat index.")
    term_stats: TermStats = option("corpus", "Source of idf.")
    max_words: int = option(2_000_000, "Most words in the term statistics.", ge=1)
    explain: bool = option(True, "Copy the model's data for explanations of hits.")
    shard_documents: int = option(
        256,
        "Documents per encoding batch, which is also the unit of resuming.",
        ge=1,
        flag="--encode-batch-documents",
    )
    workers: int = option(1, "Encoding tasks of Ray at the same time.", ge=1)
    runner: Literal["local", "ray"] = option(
        "local", "Where texts are encoded: in threads of this process, or by Ray."
    )
    ray_address: str | None = option(None, "Address of a Ray cluster; default: start Ray here.")
    resume: bool = option(True, "Resume an interrupted build with the same options.")
    reuse: bool = option(True, "Take the vectors of unchanged documents from the live version.")
    gate: str | None = option(
        None,
        "Publish only if the gate passes: a data directory with judged queries, or live.",
        metavar="DIR|live",
    )

    def check_rename(self, field_names: Sequence[str]) -> None:
        """Refuses renames to unknown fields."""
        known = ("_id", *field_names)
        for source_key, target in self.rename.items():
            if target not in known:
                raise ConfigError(
                    f"--rename-field {source_key}={target}: the model reads {', '.join(known)}, not {target!r}"
                )

    def check_runner(self) -> None:
        """Refuses Ray where it is not installed, and options that need it without it, before any work."""
        if self.runner != "ray":
            if self.ray_address or self.workers > 1:
                raise ConfigError("--ray-address and --workers need --runner ray")
            return
        try:
            importlib.import_module("ray")
        except ImportError as error:
            raise DependencyError(
                "--runner ray needs the package ray: install the extra `scale` (pip install 'glow-retrieval[scale]')"
            ) from error

    def parameters(self) -> dict[str, Any]:
        """The options that decide the result, as JSON values for manifest and report."""
        rows = rows_of(type(self))
        folders = {row.name for row in rows if Path in (row.annotation, *get_args(row.annotation))}
        values = self.model_dump(exclude=folders | _MAKES_NO_DIFFERENCE | GateLimits.model_fields.keys())
        values["threads"] = self.thread_count
        return {row.name: values[row.name] for row in rows if row.name in values}


_COMPONENT_OPTIONS = dict.fromkeys(each.options for each in COMPONENTS if each.options.model_fields)


class BuildOptions(CommonOptions, *_COMPONENT_OPTIONS):  # type: ignore[misc]  # mypy knows no bases that are data
    """What to build and how: with the options of every component."""

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...
