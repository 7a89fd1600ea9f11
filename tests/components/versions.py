"""Versions of an index as the commands make them, and copies of them whose files are changed by hand."""

import io
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from glow.artifact import MANIFEST_FILE, FileRecord, IndexRoot, read_manifest
from glow.index import Index
from tests.components.cases import AnyComponent
from tests.components.kinds import NEW, OLD
from tests.made_index import compacted, deleted, made, upserted, write

__all__ = ["Edited", "Version", "Versions", "edits"]

COUNTS = {"documents", "passages", "words", "postings", "forms", "tokens", "rows"}
"""Members of headers that other files or the segment must agree with."""


@dataclass(frozen=True)
class Version:
    """A version, open."""

    folder: Path

    @cached_property
    def index(self) -> Index:
        return Index.open(self.folder)


class Versions:
    """A base, deltas over it, and what compaction made of them."""

    def __init__(self, folder: Path, model: Path, options: Mapping[str, Any]) -> None:
        root = made(model, write(folder / "old.jsonl", OLD), folder / "root", **options)
        self.base = live(root)
        upserted(root, model, NEW[:6])
        # first, last: with a part of `NEW`, and with all of it and less of the base
        self.first = live(root)
        upserted(root, model, NEW[6:])
        deleted(root, "d/20", "d/21", "d/5", "new/41")
        self.last = live(root)
        compacted(root)
        self.compacted = live(root)


def live(root: IndexRoot) -> Version:
    return Version(root.folder(root.current()))


class Edited:
    """A copy of a version, by hard links but for its manifest."""

    def __init__(
        self,
        version: Version,  # that is copied, and stays as it is
        folder: Path,  # to make
    ) -> None:
        self.version, self.folder = version, folder
        shutil.copytree(version.folder, folder, copy_function=os.link)
        self._set(folder / MANIFEST_FILE, (version.folder / MANIFEST_FILE).read_bytes())
        self._manifest = read_manifest(folder, "index")

    def names(self, component: AnyComponent, below: str = "") -> list[str]:
        starts = tuple(below + path for path in (*component.paths, *component.stays))
        return sorted(name for name in self._manifest.files if name.startswith(starts))

    def change(
        self,
        files: Mapping[str, bytes | None],  # path -> content; None: it goes
        *,
        agrees: bool,
        counts: Mapping[str, int] | None = None,  # of the manifest, in place of its own; None: they stay
    ) -> None:
        records = dict(self._manifest.files)
        for name, content in files.items():
            self._set(self.folder / name, content)
            records.pop(name, None)
            if content is not None:
                records[name] = FileRecord(size_bytes=len(content), sha256=sha256(content).hexdigest())
        if agrees:
            counted = {**self._manifest.counts, **(counts or {})}
            manifest = self._manifest.model_copy(update={"files": records, "counts": counted})
            self._set(self.folder / MANIFEST_FILE, manifest.to_bytes())

    def mend(self, files: Mapping[str, bytes | None]) -> None:
        for name in (*files, MANIFEST_FILE):
            (self.folder / name).unlink(missing_ok=True)
            if (self.version.folder / name).is_file():
                os.link(self.version.folder / name, self.folder / name)
        self._set(self.folder / MANIFEST_FILE, (self.version.folder / MANIFEST_FILE).read_bytes())

    def open(self) -> Index:
        """As a service opens a version when another is live."""
        return Index.open(self.folder, like=self.version.index)

    def _set(self, path: Path, content: bytes | None) -> None:
        path.unlink(missing_ok=True)
        if content is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)


def edits(path: Path) -> Iterator[tuple[str, bytes]]:
    """What a file may be exchanged for that is well-formed, or nearly, and yet not its own: how, and the content."""
    whole = path.read_bytes()
    yield "garbage", b"garbage" * 99
    yield "empty", b""
    if path.suffix == ".json":
        header = json.loads(whole)
        wrong = {name: header[name] + 1 for name in COUNTS & header.keys()}
        wrong |= {name: "f" * 64 for name in ("model",) if name in header} | {"format": 99}
        for name, value in wrong.items():
            yield f"another {name}", json.dumps({**header, name: value}).encode()
    elif path.suffix == ".npy":
        array = np.load(path)
        for how, other in (("one less", array[:-1]), ("another type", array.astype(np.float64))):
            if len(array):
                file = io.BytesIO()
                np.save(file, other)
                yield how, file.getvalue()
    elif path.suffix == ".sqlite":
        copy = path.with_name("one-less.sqlite")
        copy.write_bytes(whole)
        with closing(sqlite3.connect(copy)) as connection:
            connection.executescript("DELETE FROM documents WHERE row = 0")
        yield "one less", copy.read_bytes()
        copy.unlink()
    elif path.suffix != ".faiss":  # it is mapped without a look at the file's length; a search finds out
        yield "cut", whole[:-1]
