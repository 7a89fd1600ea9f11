"""Writes columns: the document store is read twice, once to choose fields and once for their values.

Memory does not grow with the documents' content: values wait on disk in sorted runs (`columns_spill`). Only 12 bytes
per distinct value, of one field at a time, are in memory.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from glow.index.columns.dates import instant_of
from glow.index.columns.format import (
    COLUMNS_FOLDER,
    COLUMNS_HEADER,
    MAX_FIELDS,
    ORDER_FILE,
    VALUES_FILE,
    ColumnsHeader,
    FieldHeader,
)
from glow.index.columns.metadata import Scalar, ValueType, field_values, type_of
from glow.index.columns.spill import PartWriter, ValuesFile
from glow.index.stored_fields import StoredDocuments

__all__ = ["build_columns"]

MAX_SURVEYED = 65_536
"""Limit of the distinct fields that are counted for the choice; later ones are left out."""
MAX_NAMED = 1_000
MAX_VALUE_BYTES = 2_048
"""A string field with a longer value holds text for searching, not for filtering."""
RUN_VALUES = 1 << 18
RUN_BYTES = 32 << 20

Metadata = Mapping[str, Any]


def build_columns(store: StoredDocuments, folder: Path) -> ColumnsHeader:
    """Writes `columns/` into the directory of an unfinished version.

    Args:
        store: the finished document store.
        folder: the version's directory, without columns/.

    Returns:
        the header, for the report.

    Raises:
        OSError: if the disk is full or cannot be written.
    """
    target = folder / COLUMNS_FOLDER
    target.mkdir()
    np.save(target / ORDER_FILE, store.id_ranks(), allow_pickle=False)
    survey = _Survey(store.metadata())
    with ValuesFile(target / VALUES_FILE) as file, TemporaryDirectory(dir=target) as runs:
        writers = _collect(store.metadata(), survey.chosen, survey.dates(), Path(runs))
        fields = [writers[name].finish(name, file, store.count) for name in sorted(writers)]
    left_out = survey.left_out()
    header = ColumnsHeader(
        format=1,
        documents=store.count,
        fields=fields,
        left_out={name: left_out[name] for name in sorted(left_out)[:MAX_NAMED]},
        left_out_fields=len(left_out) + survey.uncounted,
        mixed=survey.mixed()[:MAX_NAMED],
    )
    (target / COLUMNS_HEADER).write_text(header.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return header


class _Survey:
    """Chooses the fields that get columns."""

    def __init__(self, documents: Iterable[Metadata]) -> None:
        self.uncounted = 0
        self._documents: Counter[str] = Counter()
        self._crowd: dict[str, int] = {}
        """Field -> number of fields of the smallest document that has it."""
        self._texts: set[str] = set()
        self._with_dates: set[str] = set()
        self._with_others: set[str] = set()
        """Fields with strings that are dates, and fields with other strings."""
        for metadata in documents:
            self._add(metadata)
        usable = [name for name in self._documents if name not in self._texts]
        # Ties go to fields of small documents: a thousand keys of one author are rare elsewhere.
        usable.sort(key=lambda name: (-self._documents[name], self._crowd[name], name))
        self.chosen = frozenset(usable[:MAX_FIELDS])

    def _add(self, metadata: Metadata) -> None:
        names = set()
        for name, value in field_values(metadata):
            names.add(name)
            if isinstance(value, str) and name not in self._with_others:
                (self._with_others if instant_of(value) is None else self._with_dates).add(name)
            if isinstance(value, str) and len(value.encode()) > MAX_VALUE_BYTES:
                self._texts.add(name)
        room = MAX_SURVEYED if len(names) <= MAX_FIELDS else MAX_SURVEYED // 2
        for name in names:
            if name in self._documents or len(self._documents) < room:
                self._documents[name] += 1
                self._crowd[name] = min(self._crowd.get(name, len(names)), len(names))
            else:
                self._texts.discard(name)
                self.uncounted += 1

    def dates(self) -> frozenset[str]:
        """Fields with columns whose strings are all dates."""
        return self.chosen & self._with_dates - self._with_others

    def mixed(self) -> list[str]:
        """Fields with columns that hold both dates and other strings."""
        return sorted(self.chosen & self._with_dates & self._with_others)

    def left_out(self) -> dict[str, str]:
        """Field -> why it has no column."""
        return {name: self._reason(name) for name in self._documents if name not in self.chosen}

    def _reason(self, name: str) -> str:
        if name in self._texts:
            return f"it holds a text of more than {MAX_VALUE_BYTES} bytes"
        return f"{MAX_FIELDS} other fields occur in more documents"


def _collect(
    documents: Iterable[Metadata], chosen: frozenset[str], dates: frozenset[str], runs: Path
) -> "dict[str, _FieldWriter]":
    writers = {name: _FieldWriter(runs / str(at)) for at, name in enumerate(sorted(chosen))}
    values = size_bytes = 0
    for row, metadata in enumerate(documents):
        seen: set[tuple[str, ValueType, Scalar]] = set()
        for name, value in field_values(metadata):
            kind = type_of(value)
            # A document counts once per value; true, 1 and "1" are distinct values.
            if kind is None or name not in chosen or (name, kind, value) in seen:
                continue
            seen.add((name, kind, value))
            size_bytes += writers[name].add(row, kind, value)
            values += 1
            instant = instant_of(value) if isinstance(value, str) and name in dates else None
            if instant is not None and (name, "date", instant) not in seen:
                seen.add((name, "date", instant))
                size_bytes += writers[name].add(row, "date", instant)
                values += 1
        if values >= RUN_VALUES or size_bytes >= RUN_BYTES:
            for writer in writers.values():
                writer.spill()
            values = size_bytes = 0
    return writers


class _FieldWriter:
    """Collects the values of one field, by type."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._parts: dict[ValueType, PartWriter] = {}
        self._documents = 0
        self._last_row = -1

    def add(self, row: int, kind: ValueType, value: Scalar) -> int:
        """Adds a value and returns its approximate size in bytes."""
        if row != self._last_row:
            self._last_row, self._documents = row, self._documents + 1
        if kind not in self._parts:
            self._parts[kind] = PartWriter(self._runs.with_suffix(f".{kind}"), kind)
        return self._parts[kind].add(row, value)

    def spill(self) -> None:
        for part in self._parts.values():
            part.spill()

    def finish(self, name: str, file: ValuesFile, count: int) -> FieldHeader:
        parts = [self._parts[kind].finish(file, count) for kind in sorted(self._parts)]
        return FieldHeader(name=name, documents=self._documents, parts=parts)
