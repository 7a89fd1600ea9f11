"""What each component answers about every document, to the bit, and told by ids: rows differ between an index and its rebuild."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.errors import DocumentNotFoundError
from glow.index import RowMask, View
from glow.index.columns import COLUMNS
from glow.index.columns.filters import parse_filter
from glow.index.columns.masks import count_values
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.passages import PASSAGES
from glow.index.postings import POSTINGS, ImpactsView
from glow.index.spelling import SPELLING
from glow.index.stored_fields import STORED_FIELDS
from glow.index.token_embeddings import TOKEN_EMBEDDINGS
from glow.index.vectors import VECTORS, SearchParams
from tests.components.kinds import NEW, OLD

__all__ = ["PROBES", "Seen", "bits"]

WORDS = "bees owls coffee beans tea zeppelins grow shade studied volcano note number unheard".split()
FILTERS = (
    {"field": "lang", "in": ["en", "is"]},
    {"not": {"field": "lang", "eq": "de"}},
    {"field": "year", "gt": 2003, "lte": 2011},
    {"field": "day", "eq": "later"},
    {"field": "tags", "eq": "t1"},
    {"field": "open", "exists": True},
    {"field": "code", "gte": 10},
    {"and": [{"field": "code", "eq": "c2"}, {"field": "tags", "in": ["t2", "t0"]}]},
)


def bits(array: NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    """All that an array is."""
    return array.dtype.str, array.shape, array.tobytes()


@dataclass
class Seen:
    """An index and what of it can be found."""

    view: View  # the index
    ids: list[str]  # of the documents that can be found, sorted
    rows: NDArray[np.int64]  # of these documents, int64 [n]
    vectors: NDArray[np.int64]  # rows of their vectors, int64 [v], a document's one after another
    order: NDArray[np.uint32]  # uint32, the rank of each document's id

    @classmethod
    def of(cls, view: View) -> "Seen":
        """By the stored documents, whose own probe looks at them closely."""
        stored = view[STORED_FIELDS]
        found = {document.id: stored.find(document.id) for document in stored.scan()}
        ids = sorted(found)
        rows = np.array([found[each] for each in ids], np.int64)
        first = view.rows.first if view.rows.first is not None else np.arange(view.rows.documents + 1)
        spans = [np.arange(first[row], first[row + 1]) for row in rows]
        vectors = np.concatenate([np.empty(0, np.int64), *spans]).astype(np.int64)
        return cls(view, ids, rows, vectors, view[COLUMNS].columns.order)

    def named(self, rows: NDArray[np.int64]) -> list[str]:
        """The ids of rows that were found; -1 fills up."""
        known = dict(zip(self.rows.tolist(), self.ids, strict=True))
        return ["-" if row < 0 else known[row] for row in rows.reshape(-1).tolist()]

    def half(self, rows: NDArray[np.int64], count: int) -> RowMask:
        """Every other one of some rows, of so many."""
        mask = np.zeros(count, np.bool_)
        mask[rows[::2]] = True
        return RowMask(mask)


def _stored_fields(seen: Seen) -> Any:
    stored, rows = seen.view[STORED_FIELDS], seen.rows.tolist()
    whole = stored.rows(rows)
    assert list(stored.scan()) == stored.rows(sorted(rows))
    assert [*stored.scan(0, 3), *stored.scan(3)] == list(stored.scan())
    lost = {each["_id"] for each in (*OLD, *NEW)} - set(seen.ids)
    assert [name for name in sorted(lost) if stored.find(name) is not None] == []
    assert stored.find("nobody") is None
    for row, name in zip(rows, seen.ids, strict=True):
        assert stored.find(name) == row and [stored.get(name)] == stored.rows([row])
    for name in ("nobody", *sorted(lost)[:1]):
        with pytest.raises(DocumentNotFoundError):
            stored.get(name)
    by_id = [(name, seen.named(np.array([row])), fields, rest) for name, row, fields, rest in stored.by_id()]
    return stored.count, whole, stored.ids(rows), by_id


def _columns(seen: Seen) -> Any:
    columns, masks = seen.view[COLUMNS].columns, seen.view[COLUMNS].masks
    # An id's rank among those that can be found; `named` refuses a row that is gone.
    found: dict[str, Any] = {"ranks": np.argsort(np.argsort(seen.order[seen.rows])).tolist()}
    for asked in FILTERS:
        if all(name in columns.fields for name in ("lang", "year", "day", "tags", "open", "code")):
            found[str(asked)] = sorted(seen.named(masks.mask(parse_filter(asked, columns)).rows))
    for name, each in columns.fields.items():
        found[name] = count_values(columns, name, seen.rows, 100, len(seen.rows)), each.documents
    return found


def _passages(seen: Seen) -> Any:
    cut, vectors = seen.view[PASSAGES], seen.vectors
    assert cut.order is not None
    total = len(cut)
    scores = np.linspace(1, 0, len(vectors), dtype=np.float32)
    folded = cut.fold(scores, np.random.default_rng(0).permutation(vectors) if len(vectors) else vectors)
    allowed = cut.mask(seen.half(seen.rows, len(cut.first) - 1))
    return (
        (cut.count, cut.header.field, cut.header.limit),
        (cut.starts[vectors].tolist(), cut.ends[vectors].tolist()),
        seen.named(cut.documents[vectors].astype(np.int64)),
        np.argsort(cut.order[vectors]).tolist(),
        (len(folded[0]), sorted(seen.named(folded[1]))),
        (len(allowed) == total, np.isin(vectors, allowed.rows).tolist()),
    )


def _words(seen: Seen, impacts: ImpactsView) -> Any:
    found: list[Any] = [impacts.analyzer.name, impacts.largest]
    assert impacts.bound(WORDS) >= impacts.score(WORDS, seen.rows).max(initial=0.0) - 1e-6
    for words in (WORDS, WORDS[:1], ["unheard"]):
        found.append(impacts.score(words, seen.rows).tolist())
        for k in (1, 7, 100):
            for allowed in (None, seen.half(seen.rows, len(impacts))):
                scores, rows = impacts.search(words, k, allowed, seen.order)
                hits = zip(seen.named(rows), scores.tolist(), strict=True)
                found.append([{"id": name, "score": score} for name, score in hits])
    found.append(impacts.by_word(WORDS, seen.rows).tolist())
    return found


def _postings(seen: Seen) -> Any:
    impacts = seen.view[POSTINGS]
    # A word that only a document had which is gone may be held on, so the others alone are certain.
    assert not impacts.holds("unheard")
    added = (impacts.by_word(WORDS, seen.rows) > 0).any(axis=0)
    assert all(impacts.holds(word) for word, adds in zip(WORDS, added, strict=True) if adds)
    return _words(seen, impacts)


def _learned(seen: Seen) -> Any:
    learned = seen.view[LEARNED_SPARSE]
    return [learned.expansions(WORDS, row) for row in seen.rows.tolist()], _words(seen, learned)


def _spelling(seen: Seen) -> Any:
    tables = seen.view[SPELLING]
    counts: dict[str, int] = {}
    for table in tables:
        for word, count in table.items():
            counts[word] = counts.get(word, 0) + count
    meant: dict[str, dict[str, int]] = {}
    for word in ("cofee", "zeppelin", "rivver", "owls"):
        for table in tables:
            for other, count in table.candidates(word).items():
                meant.setdefault(word, {}).setdefault(other, 0)
                meant[word][other] += count
    return counts, meant, [any(table.has(word) for table in tables) for word in ("coffee", "cofee")]


def _token_embeddings(seen: Seen) -> Any:
    states, vectors = seen.view[TOKEN_EMBEDDINGS], seen.vectors
    header = states.header.model_dump(exclude={"documents", "tokens"})
    if not len(vectors):
        return header
    read = [bits(part) for rows in (vectors, vectors[::-2], vectors[:1]) for part in states.read(rows)]
    return header, bits(states.lengths(vectors)), read


def _vectors(seen: Seen) -> Any:
    dense, vectors, cut = seen.view[VECTORS], seen.vectors, seen.view.get(PASSAGES)
    stored = dense.vectors(vectors)
    found: list[Any] = [dense.dimensions, dense.has_vectors, bits(stored)]
    order = seen.order if cut is None else cut.order
    owners = dict(zip(vectors.tolist(), range(len(vectors)), strict=True)) | {-1: -1}
    queries = (
        np.ascontiguousarray(stored[[0, len(stored) // 2, -1]])
        if len(stored)
        else np.eye(2, dense.dimensions, dtype=np.float32)
    )
    found += [bits(dense.score(query, vectors)) for query in queries]
    for allowed in (None, seen.half(vectors, len(dense))):
        for k in (1, 9, 300):
            scores, rows = dense.search(queries, k, SearchParams(exact=True), allowed, order)
            kept = rows >= 0
            found.append(
                (bits(scores[kept]), kept.sum(1).tolist(), [owners[row] for row in rows[kept].tolist()])
            )
    return found


PROBES: dict[str, Callable[[Seen], Any]] = {
    "stored_fields": _stored_fields,
    "columns": _columns,
    "passages": _passages,
    "postings": _postings,
    "spelling": _spelling,
    "learned_sparse": _learned,
    "token_embeddings": _token_embeddings,
    "vectors": _vectors,
}
"""Name of a component -> its answers; who adds a component adds its own."""
