"""A component that is written in one file and added to the list by one line goes through everything that is done with components."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.artifact import IndexRoot
from glow.index import (
    COMPONENTS,
    DELTA,
    REPORT_FILE,
    BuildInputs,
    Component,
    ComponentOptions,
    Corpus,
    Explained,
    Index,
    MergeSource,
    Rules,
    Segment,
    Segments,
)
from glow.index.stored_fields import STORED_FIELDS
from glow.storage import map_array
from tests.components.answers import Answers
from tests.components.files import Files
from tests.components.probes import PROBES, Seen, bits
from tests.components.versions import Versions
from tests.goldens.service import serving
from tests.made_index import compacted, opened, upserted

MakeVersions = Callable[[str], Versions]
FILE = "lengths/words.npy"
Words = NDArray[np.int32]


class Lengths(Protocol):
    """How many words documents have; safe to read from many threads."""

    def read(self, rows: NDArray[np.int64]) -> Words: ...


class StoredLengths:
    """One segment's, memory-mapped: int32 [n]."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def read(self, rows: NDArray[np.int64]) -> Words:
        return self._words[rows]


class SegmentedLengths:
    """Those of all segments."""

    def __init__(self, segments: Segments[StoredLengths]) -> None:
        self._segments = segments

    def read(self, rows: NDArray[np.int64]) -> Words:
        return self._segments.gather(rows, StoredLengths.read)


class LengthsComponent(Component[StoredLengths, Lengths]):
    """How many words every document's fields hold."""

    name, label, stage, part = "lengths", "lengths", "lengths", "lengths"
    paths = ("lengths/",)

    def rules(self, options: ComponentOptions, asked: BuildInputs) -> Rules:
        return Rules()

    def rules_of(self, segment: Segment, *, delta: bool) -> Rules | None:
        return Rules() if segment.get(self) is not None else None

    def build(self, corpus: Corpus, rules: Rules) -> None:
        counts = []
        for document in corpus.documents():
            texts = (text for values in document.fields.values() for text in values)
            counts.append(sum(len(text.split()) for text in texts))
            corpus.advance(1)
        self._write(corpus.made.folder, [np.array(counts, np.int32)])

    def merge(self, kept: Sequence[MergeSource], rules: Rules, made: Segment) -> None:
        self._write(made.folder, [each.segment[self].read(each.rows(self.per)) for each in kept])

    def _write(self, folder: Path, blocks: list[Words]) -> None:
        (folder / FILE).parent.mkdir()
        np.save(folder / FILE, np.concatenate(blocks), allow_pickle=False)

    def open(self, segment: Segment) -> StoredLengths | None:
        if not segment.has_any(self.paths):
            return None
        segment.require(FILE)
        return StoredLengths(map_array(segment.path(FILE), np.int32, segment.rows.documents))

    def reader(self, segments: Segments[StoredLengths]) -> Lengths:
        return SegmentedLengths(segments)

    def report(self, made: Segment, rules: Rules, seconds: Mapping[str, float]) -> dict[str, Any]:
        return {"lengths": made.rows.documents}

    def serves(self, reader: Lengths | None) -> Mapping[str, str]:
        absent = "this index holds no lengths; build it with this version"
        return {"shortest": "" if reader is not None else absent}

    def info(self, reader: Lengths | None) -> dict[str, Any]:
        return {"lengths": reader is not None}

    def explain(
        self, reader: Lengths, retriever: str, words: Sequence[str], hit: Explained
    ) -> dict[str, Any]:
        return {"length": int(reader.read(np.array([hit.row]))[0])}


LENGTHS = LengthsComponent()
BOTH = pytest.mark.parametrize("kind", ["whole", "plain"])


@pytest.fixture(scope="module", autouse=True)
def listed(toy_index: Path) -> Iterator[None]:
    """The one line that adds it, and its answers for the suite; the index that all tests share is built before."""
    COMPONENTS.append(LENGTHS)
    PROBES[LENGTHS.name] = lambda seen: bits(seen.view[LENGTHS].read(seen.rows))
    yield
    COMPONENTS.remove(LENGTHS)
    del PROBES[LENGTHS.name]


CASES = [pytest.param((kind, LENGTHS.name), id=kind) for kind in ("whole", "plain")]


@pytest.mark.parametrize("case", CASES, indirect=True)
class TestAnswers(Answers):
    """What it answers and writes."""


@pytest.mark.parametrize("file_case", CASES, indirect=True)
class TestFiles(Files):
    """What it makes of files."""


def counted(index: Index) -> dict[str, int]:
    return {
        document.id: sum(len(text.split()) for texts in document.fields.values() for text in texts)
        for document in index[STORED_FIELDS].scan()
    }


@BOTH
def test_it_is_built_added_to_deleted_from_and_compacted(kind: str, made_versions: MakeVersions) -> None:
    versions = made_versions(kind)
    for version in (versions.base, versions.first, versions.last, versions.compacted):
        index, seen = version.index, Seen.of(version.index.view)
        assert dict(zip(seen.ids, index[LENGTHS].read(seen.rows).tolist(), strict=True)) == counted(index)
        assert FILE in index.manifest.files
        assert (f"{DELTA}{FILE}" in index.manifest.files) == (index.delta is not None)
        assert "lengths" in index.parts()
        assert index.info()["lengths"] is True
        assert index.refusals["shortest"] == ""
    for version, count in ((versions.base, 40), (versions.compacted, 42)):
        assert json.loads((version.folder / REPORT_FILE).read_bytes())["lengths"] == count


@BOTH
def test_a_service_shows_it(kind: str, made_versions: MakeVersions) -> None:
    versions = made_versions(kind)
    root, expected = versions.base.folder.parent, counted(versions.compacted.index)
    with serving(root) as client:
        info = client.get("/info").json()["index"]
        body = {"query": "owls and bees", "retriever": "hybrid", "explain": True, "top_k": 20, "match": "any"}
        hits = client.post("/search", json=body).json()["hits"]
    assert info["lengths"] is True and "lengths" in info["components"]
    assert len(hits) == 20
    assert {hit["id"]: hit["explanation"]["length"] for hit in hits}.items() <= expected.items()


def test_a_version_built_before_goes_on_without_it(toy_index: Path, toy_model: Path, tmp_path: Path) -> None:
    root = IndexRoot(shutil.copytree(toy_index, tmp_path / "toy"))
    for _ in range(2):
        index = opened(root)
        assert not index.holds(LENGTHS) and "lengths" not in index.parts()
        assert index.info()["lengths"] is False
        assert "build it with" in index.refusals["shortest"]
        upserted(root, toy_model, [{"_id": "b", "text": "zebra"}])
    assert index.delta is not None
    compacted(root)
    assert not opened(root).holds(LENGTHS)
