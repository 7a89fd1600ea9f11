"""An index with a delta, and its compacted form, equal one built from the same documents and term statistics."""

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.artifact import IndexRoot, write_artifact
from glow.contract import FoundHits
from glow.errors import DocumentNotFoundError
from glow.index import Index
from glow.index.columns import COLUMNS
from glow.index.columns.filters import parse_filter
from glow.index.columns.masks import parse_facets
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import SearchParams
from glow.records import Document
from glow.runtime import Model
from glow.search import Retriever
from glow_index_builder.deltas.upsert import write_segment
from glow_index_builder.open_version import OpenVersion
from glow_service.search.plan import SearchPlan
from glow_service.search.run import SearchSession
from tests.made_index import compacted, deleted, made, opened, upserted, write

Json = dict[str, Any]
STEPS, CHANGES, BASE = 5, 12, 60
RETRIEVERS: tuple[Retriever, ...] = ("dense", "lexical", "hybrid")
QUERIES = (
    "how do honey bees find the way home",
    "ants trail of scent",
    "how to boil an egg",
    "volcano zebra",
)
FILTERS: tuple[Json | None, ...] = (
    None,
    {"field": "lang", "eq": "en"},
    {"and": [{"field": "year", "gte": 2003}, {"not": {"field": "lang", "eq": "de"}}]},
    {"field": "only", "exists": False},
)


class Corpus:
    """Made-up documents of the toy corpus's words, and what an index of them must hold after each change."""

    def __init__(self, seed: int, toy_corpus: Path) -> None:
        self.random = random.Random(seed)  # noqa: S311 - test data
        lines = [json.loads(line) for line in toy_corpus.read_bytes().splitlines()]
        self._sentences = [str(line["text"]) for line in lines]
        self._titles = [str(line["title"]) for line in lines]
        self.held: dict[str, Json] = {}

    def document(self, identifier: str) -> Json:
        """A document of some id."""
        pick = self.random
        made: Json = {
            "_id": identifier,
            "title": pick.choice(self._titles),
            "text": " ".join(pick.choices(self._sentences, k=pick.randint(1, 20)))
            + f" {pick.choice(['volcano', 'zebra', 'egg'])} {pick.randrange(1000)}",
            "lang": pick.choice(["en", "de", "fr", ["en", "de"]]),
            "year": pick.choice([2001, 2002.5, 2003, 2004, True, "2003"]),
        }
        if pick.random() < 0.2:
            made["only"] = pick.choice(["a", "b"])
        return made

    def upserts(self) -> list[Json]:
        """Some new ids, some that are held, some that were deleted before, and one twice."""
        ids = [f"d{self.random.randrange(BASE + 30):03}" for _ in range(CHANGES)]
        lines = [self.document(identifier) for identifier in [*ids, ids[0]]]
        for line in lines:
            self.held[line["_id"]] = line
        return lines

    def deletes(self) -> list[str]:
        """Some ids that are held."""
        ids = self.random.sample(sorted(self.held), CHANGES)
        for identifier in ids:
            del self.held[identifier]
        return ids


@pytest.fixture
def corpus(toy_corpus: Path) -> Corpus:
    return Corpus(3, toy_corpus)


@pytest.fixture
def root(corpus: Corpus, toy_model: Path, tmp_path: Path) -> IndexRoot:
    """An index of the corpus's first documents."""
    corpus.held = {f"d{number:03}": corpus.document(f"d{number:03}") for number in range(BASE)}
    source = write(tmp_path / "base.jsonl", list(corpus.held.values()))
    return made(toy_model, source, tmp_path / "index", passages=True)


def change(root: IndexRoot, corpus: Corpus, model: Path, step: int) -> None:
    """One random command."""
    if step % 2:
        deleted(root, *corpus.deletes())
    else:
        upserted(root, model, corpus.upserts())


def rebuilt(root: IndexRoot, model: Path, documents: list[Document], folder: Path) -> Index:
    """An index of documents with the live version's term statistics and average length, built without compaction."""
    live = OpenVersion.open(root)
    with write_artifact(folder / "rebuilt", "index") as writer:
        made, _ = write_segment(documents, live, Model.open(model), folder / "segment", lambda count: None)
        shutil.copytree(folder / "segment", writer.folder, dirs_exist_ok=True)
        for name in live.manifest.files:
            if name.startswith(("model/", "terms/")):
                (writer.folder / name).parent.mkdir(exist_ok=True)
                (writer.folder / name).write_bytes((live.folder / name).read_bytes())
        writer.hashes, writer.parents = live.manifest.hashes, {"model": live.manifest.parents["model"]}
        writer.counts = {"documents": made.rows.documents, "dimensions": live.manifest.counts["dimensions"]}
        if made.rows.first is not None:
            writer.counts["passages"] = made.rows.count("vector")
    return Index.open(folder / "rebuilt")


def answers(index: Index, queries: Sequence[str] = QUERIES) -> Iterator[FoundHits]:
    """Every retriever, with and without filters, two pages each, with facets."""
    columns = index[COLUMNS].columns
    assert columns is not None
    facets = parse_facets([{"field": "lang"}, {"field": "year", "limit": 3}], columns)
    for text, retriever, wanted, offset in product(queries, RETRIEVERS, FILTERS, (0, 10)):
        chosen = None if wanted is None else parse_filter(wanted, columns)
        given = {"top_k": 10, "candidates": 40, "params": SearchParams(exact=True), "facets": facets}
        call = SearchPlan(text, offset=offset, retriever=retriever, filter=chosen, **given)
        yield SearchSession(index, call).run().found


def require_same(found: Index, expected: Index) -> None:
    for here, there in zip(answers(found), answers(expected), strict=True):
        for name in ("id", "fields", "metadata", "passage"):
            assert [getattr(hit, name) for hit in here.hits] == [getattr(hit, name) for hit in there.hits]
        scores = [[hit.score for hit in each.hits] for each in (here, there)]
        np.testing.assert_allclose(*scores, atol=1e-5)
        assert here.facets == there.facets


def require_holds(index: Index, corpus: Corpus) -> None:
    """The documents of the corpus, all of them, and no other."""
    scanned = {document.id: document for document in index[STORED_FIELDS].scan()}
    assert scanned.keys() == corpus.held.keys()
    assert index[STORED_FIELDS].count == len(scanned) == index.manifest.counts["documents"]
    for number in range(BASE + 30):
        identifier = f"d{number:03}"
        if identifier in corpus.held:
            document = index[STORED_FIELDS].get(identifier)
            row = index[STORED_FIELDS].find(identifier)
            assert document == scanned[identifier] == index[STORED_FIELDS].rows([row or 0])[0]
            assert document.fields["text"] == (corpus.held[identifier]["text"],)
            assert document.metadata["year"] == corpus.held[identifier]["year"]
        else:
            with pytest.raises(DocumentNotFoundError):
                index[STORED_FIELDS].get(identifier)


def test_any_sequence_of_changes_is_what_a_rebuild_of_its_documents_is(
    corpus: Corpus, root: IndexRoot, toy_model: Path, tmp_path: Path, toy_corpus: Path
) -> None:
    base = root.current()
    for step in range(STEPS):
        change(root, corpus, toy_model, step)
        index = opened(root)
        require_holds(index, corpus)
        assert index.manifest.parents["base"]["name"] == base
        for answer in answers(index, QUERIES[:1]):
            assert {hit.id for hit in answer.hits} <= corpus.held.keys()
    assert (
        index.delta is not None and len(index.delta.rows.tombstones) > 10 < index.delta.segment.rows.documents
    )
    assert index.manifest.hashes == root.manifest(base).hashes
    expected = rebuilt(root, toy_model, list(index[STORED_FIELDS].scan()), tmp_path)
    require_same(index, expected)
    assert index.manifest.counts["passages"] == len(expected[PASSAGES]) > index[STORED_FIELDS].count

    assert compacted(root)["status"] == "compacted"
    packed = opened(root)
    assert packed.delta is None
    require_holds(packed, corpus)
    require_same(packed, expected)
    equal = [name for name in expected.manifest.files if name.startswith(("impacts/", "columns/", "terms/"))]
    assert len(equal) == 14
    for name in equal:
        assert packed.manifest.files[name] == expected.manifest.files[name], name
    assert "base" not in packed.manifest.parents and "tombstones" not in packed.manifest.counts
    change(root, corpus, toy_model, STEPS + 1)
    require_holds(opened(root), corpus)


def test_an_index_may_lose_all_its_documents_and_get_others(
    toy_model: Path, toy_corpus: Path, toy_index_copy: IndexRoot
) -> None:
    deleted(toy_index_copy, *(json.loads(line)["_id"] for line in toy_corpus.read_bytes().splitlines()))
    index = opened(toy_index_copy)
    assert index[STORED_FIELDS].count == 0
    for retriever in RETRIEVERS:
        call = SearchPlan("bees", 10, 0, 10, SearchParams(), retriever)
        assert SearchSession(index, call).run().found.hits == ()
    upserted(toy_index_copy, toy_model, [{"_id": "toy/1", "title": "Ants again"}])
    for retriever in RETRIEVERS:
        call = SearchPlan("ants", 10, 0, 10, SearchParams(), retriever)
        assert [hit.id for hit in SearchSession(opened(toy_index_copy), call).run().found.hits] == ["toy/1"]


@pytest.fixture
def toy_index_copy(toy_index: Path, tmp_path: Path) -> IndexRoot:
    """A root of its own with the toy index."""
    return IndexRoot(Path(shutil.copytree(toy_index, tmp_path / "toy")))
