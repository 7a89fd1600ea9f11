"""Lines of input of any format, read as documents. Rejected lines are counted by fault, the first ones kept in a file."""

import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import ijson

from glow.collection import (
    MAX_ID_BYTES,
    NO_ID,
    RecordKeys,
    UsedKeys,
    known_id,
    parse_object,
    read_document,
    too_long,
)
from glow.errors import BuildError, RecordError
from glow.records import Document
from glow_index_builder.input.formats import encoding_hint


@dataclass(frozen=True, slots=True)
class Line:
    """One line of input, or a table row in the form of a line."""

    number: int  # counted from 1
    data: bytes  # the line without its line ending; only its start if `is_too_long`
    read_bytes: int  # decompressed bytes that this line took in the file
    is_too_long: bool = False  # whether it had more bytes than allowed
    fault: str = ""  # why it is not a document, if that is known already; otherwise empty
    form: str = ""  # what wrote it, if that is to be told


class LineReader:
    """Reads lines as documents of a model's fields."""

    def __init__(self, names: Sequence[str], keys: RecordKeys, max_line_bytes: int) -> None:
        self._names, self._keys, self._max_line_bytes = names, keys, max_line_bytes
        self.used = UsedKeys()
        self.forms: Counter[str] = Counter()  # form -> number of its lines

    def read(self, line: Line) -> Document:
        """The document of a line."""
        self.require_whole(line)
        if line.form:
            self.forms[line.form] += 1
        return read_document(line.data, self._names, self._keys, self._max_line_bytes, self.used)

    def require_whole(self, line: Line) -> None:
        """Refuses a line that is too long or unreadable."""
        if line.fault:
            raise RecordError(line.fault)
        if line.is_too_long:
            raise too_long(self._max_line_bytes)

    def known_id(self, line: Line) -> str | None:
        """The id of an invalid line, if it can be read."""
        return known_id(line.data, self._keys)


REJECTS_FILE = "rejects.jsonl"
"""Rejected lines: file, line, id if known, reason, start of the line."""
START_CHARACTERS = 200
REASON_CHARACTERS = 500
SHOWN, SHOWN_COLUMNS = 3, 6
COMPARED_RECORDS, COMPARED_KEYS = 100, 100
"""So many records without id are looked at for a key that would do, and so many keys of the first one."""
_NAMES_ID = re.compile(r"(?i)(id|key|code|sku|isbn|nr|no|number|slug|url)$")
"""Keys that sound like ids come first."""
MAX_WRITTEN = 10_000
"""Further rejects are only counted: a file of a few kilobytes may unpack to millions of bad lines."""
# Faults come from code, so there are few; the limit is a safeguard.
MAX_FAULTS = 50
OTHER = "other"
_DETAILS = re.compile(r"(: |, found|, expected|; ).*", re.DOTALL)
_FIGURES = re.compile(r"(?<![\w-])-?\d[\d.e+-]*")

_NOT_JSON = "Taken are JSON and JSON Lines, CSV and TSV by their names' endings or --delimiter, and Parquet"


def key_of_list(data: bytes) -> str:
    """The first key, or path of keys, that holds a list of objects in an object whose end may be missing; or empty."""
    with suppress(ijson.JSONError, ValueError):
        for path, event, _ in ijson.parse(io.BytesIO(data)):
            if event == "start_map" and path.endswith(".item"):
                return str(path).removesuffix(".item")
    return ""


def list_hint(key: str) -> str:
    """What to do about one object that holds all documents."""
    return f"The key '{key}' holds a list; if those are the documents, give them alone: jq -c '.{key}[]' FILE > documents.jsonl"


def written_of(count: int) -> str:
    """How many of `count` rejects a file holds."""
    return "all are in" if count <= MAX_WRITTEN else f"the first {MAX_WRITTEN} are in"


class _IdKeys:
    """The keys of records without id whose values would do: in each of the first ones, distinct, text or whole numbers."""

    def __init__(self) -> None:
        self._records = 0
        self._values: dict[str, set[str | int]] = {}  # key -> its values
        self._phrases: set[str] = set()  # keys whose values have blanks, such as titles

    def add(self, data: bytes) -> None:
        """Looks at the line of a record without id."""
        if self._records == COMPARED_RECORDS:
            return
        record = parse_object(data)
        if not self._records:
            self._values = {key: set() for key in list(record)[:COMPARED_KEYS]}
        self._records += 1
        for key, values in list(self._values.items()):
            value = record.get(key)
            if not isinstance(value, str | int) or isinstance(value, bool) or value in values:
                del self._values[key]
            elif not str(value).strip() or len(str(value)) > MAX_ID_BYTES:
                del self._values[key]
            else:
                values.add(value)
                self._phrases |= {key} if " " in str(value) else set()

    def hint(self) -> str:
        """What to do about records without id."""
        many = self._values if self._records > 1 else ()  # one object is likely to hold the documents
        names = sorted(many, key=lambda key: (not _NAMES_ID.search(key), key in self._phrases))[:SHOWN]
        start = "Each document needs an id, as the key '_id' or 'id'"
        if not names:
            return (
                f"{start}; --id-field KEY names another one, and --generate-ids takes a hash of the content"
            )
        shown = f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]
        noun = "keys" if names[1:] else "key"
        return f"{start}; its {noun} {shown} would do: --id-field {names[0]}; or --generate-ids"


class RejectLog:
    """Writes `rejects.jsonl`: file, line, id if known, reason, start of the line. Use as a context manager."""

    def __init__(self, path: Path, before: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.faults: Counter[str] = Counter(before["faults"] if before else {})  # fault -> number of lines
        self.count = self.faults.total()
        self.first: list[str] = list(before["first"] if before else [])
        self._id_keys = _IdKeys()
        self._list_key = ""  # of the first record
        # A character outside of UTF-8 (a lone surrogate in a bad id) becomes a JSON escape.
        self._file = path.open("a" if before else "w", encoding="utf-8", errors="backslashreplace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        if not self.count:
            self.path.unlink(missing_ok=True)

    @property
    def counts(self) -> dict[str, Any]:
        """The number of lines of each fault, and the first few, as JSON values."""
        return {"faults": dict(self.faults.most_common()), "first": self.first}

    def add(
        self, file: str | None, line: int | None, reason: str, data: bytes, identifier: str | None = None
    ) -> None:
        """Records one line."""
        reason = reason[:REASON_CHARACTERS]
        if not self.count:
            self._list_key = key_of_list(data)
        if reason.startswith(NO_ID):
            self._id_keys.add(data)
        if reason.startswith("not UTF-8"):
            reason += f"; {encoding_hint(data)}"
        start = data[: 4 * START_CHARACTERS].decode(errors="replace")[:START_CHARACTERS]
        record = {"file": file, "line": line, "id": identifier, "reason": reason, "start": start}
        if self.count < MAX_WRITTEN:
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.count += 1
        fault = _FIGURES.sub("…", _DETAILS.sub("", reason))
        self.faults[fault if fault in self.faults or len(self.faults) < MAX_FAULTS else OTHER] += 1
        if len(self.first) < SHOWN:
            self.first.append(f"{file} line {line}: {reason}" if file else f"document {identifier}: {reason}")

    def require_share(
        self,
        documents: int,
        max_share: float,  # largest allowed ratio of rejects, in [0, 1]
        keep_as: Path,
    ) -> None:
        """Fails a build whose input has too many rejects, and moves the rejects to `keep_as`."""
        lines = documents + self.count
        if documents and self.count <= max_share * lines:
            return
        if not lines:
            raise BuildError("the input holds no document: every line is empty; the live index is unchanged")
        self._file.flush()
        self.path.replace(keep_as)
        limit = f"limit: {max_share:.0%}, --max-reject-ratio" if documents else "so there is no document"
        faults = ", ".join(f"{count} x {fault}" for fault, count in self.faults.most_common(5))
        (fault, _), *_ = self.faults.most_common(1)
        hints = {NO_ID: self._id_keys.hint(), "not JSON": _NOT_JSON}
        hint = next((f". {hint}" for start, hint in hints.items() if fault.startswith(start)), "")
        if lines == 1 and self._list_key:
            hint = f". {list_hint(self._list_key)}"
        raise BuildError(
            f"{self.count} of {lines} input lines are invalid ({limit}): {faults}. First: {' | '.join(self.first)}{hint}. "
            f"{written_of(self.count).capitalize()} {keep_as}. The live index is unchanged"
        )
