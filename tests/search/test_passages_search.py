"""A search of passages finds the documents of the best ones: exactly, stably, and as many as were asked for."""

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.index import RowMask
from glow.index.passages import PassageMap, PassagesHeader
from glow.index.vectors import GPU_MAX_HITS, DenseIndex, SearchParams, build_dense
from glow.search import search_documents

Vectors = NDArray[np.float32]
COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=12)


def mapped(counts: list[int], order: NDArray[np.uint32] | None = None) -> PassageMap:
    """A map of documents with so many passages each, of ten characters."""
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    documents = np.repeat(np.arange(len(counts)), counts).astype(np.uint32)
    starts = (10 * (np.arange(len(documents)) - first[documents])).astype(np.uint32)
    header = PassagesHeader(field="text", limit=9, documents=len(counts), passages=len(documents), left_out=0)
    return PassageMap(header, documents, starts, starts + np.uint32(10), first, order)


def naive(
    vectors: Vectors,
    query: Vectors,
    passages: PassageMap,
    allowed: NDArray[np.bool_],
    order: NDArray[np.uint32],
) -> list[tuple[int, int]]:
    """Every allowed document with its best passage: by score, then by order, then by row."""
    scores = vectors @ query
    best: dict[int, int] = {}
    for row in sorted(range(len(passages)), key=lambda row: (-scores[row], row)):
        best.setdefault(int(passages.documents[row]), row)
    ranked = sorted(best.items(), key=lambda item: (-scores[item[1]], order[item[0]]))
    return [(document, row) for document, row in ranked if allowed[document]]


@settings(deadline=None)
@given(counts=COUNTS, data=st.data())
def test_a_search_finds_the_documents_of_the_best_passages(counts: list[int], data: st.DataObject) -> None:
    """Vectors of whole numbers tie often, and their products have no rounding."""
    order = np.array(data.draw(st.permutations(range(len(counts)))), np.uint32)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts))))
    passages = mapped(counts, order)
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    vectors = generator.integers(-1, 2, (len(passages), 3)).astype(np.float32)
    queries = generator.integers(-1, 2, (3, 3)).astype(np.float32)
    dense = build_dense(vectors, "flat")
    every = np.ones(len(counts), bool)
    for mask in (None, allowed):
        expected = [
            naive(vectors, query, passages, every if mask is None else mask, order) for query in queries
        ]
        for k in (1, 2, 5, 50):
            rows = None if mask is None else RowMask(mask.copy())
            found = search_documents(dense, passages, queries, k, SearchParams(exact=True), rows)
            for (scores, documents, best), wanted, query in zip(found, expected, queries, strict=True):
                assert list(zip(documents.tolist(), best.tolist(), strict=True)) == wanted[:k]
                np.testing.assert_array_equal(scores, vectors[best] @ query)


@pytest.mark.parametrize("k", [400, 700, 1_000])
def test_a_gpu_is_never_asked_for_more_than_it_can_find(k: int) -> None:
    """1,500 documents with three passages each; only one document's are near, so that the search looks further."""

    class OnGpu:
        device = "cuda"
        asked: ClassVar[list[int]] = []

        def search(
            self, vectors: Vectors, k: int, *_: object, **__: object
        ) -> tuple[Vectors, NDArray[np.int64]]:
            self.asked.append(k)
            return np.ones((len(vectors), k), np.float32), np.tile(np.arange(k) % 3, (len(vectors), 1))

    dense = OnGpu()
    ((_, documents, _),) = search_documents(dense, mapped([3] * 1_500), np.ones((1, 2), np.float32), k)  # type: ignore[arg-type]
    assert documents.tolist() == [0]
    assert max(dense.asked) == GPU_MAX_HITS


def test_one_document_of_many_near_passages_does_not_hide_the_others() -> None:
    """A document holds the hundred best passages: the search looks further until ten documents are found."""
    counts = [100, *[1] * 40]
    vectors = np.zeros((140, 2), np.float32)
    vectors[:, 0] = np.linspace(1, 0.1, 140)
    vectors[:, 1] = np.sqrt(1 - vectors[:, 0] ** 2)
    query = np.array([[1, 0]], np.float32)
    ((_, documents, best),) = search_documents(build_dense(vectors, "flat"), mapped(counts), query, 10)
    assert documents.tolist() == [*range(10)]
    assert best.tolist() == [0, *range(100, 109)]
    ((_, documents, _),) = search_documents(build_dense(vectors, "hnsw"), mapped(counts), query, 10)
    assert len(set(documents.tolist())) == 10 and documents[0] == 0


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_query_finds_the_same_among_others_as_alone(kind: str, vectors: Vectors, queries: Vectors) -> None:
    dense: DenseIndex = build_dense(vectors, kind)  # type: ignore[arg-type]
    passages = mapped([*[3] * 500, *[1] * 1400, 100])
    together = search_documents(dense, passages, queries, 20)
    for query, expected in zip(queries, together, strict=True):
        (alone,) = search_documents(dense, passages, query[None], 20)
        for ours, theirs in zip(alone, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_an_approximate_search_that_meets_too_few_gives_those(vectors: Vectors, queries: Vectors) -> None:
    dense = build_dense(vectors, "ivf-pq")
    found = search_documents(dense, mapped([2] * 1500), queries, 1500, SearchParams(nprobe=1))
    for scores, documents, best in found:
        assert 0 < len(documents) == len(scores) == len(best) < 1500
        assert (documents == best // 2).all()
